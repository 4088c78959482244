package gemm

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// pack writes x [k, n] to dst in panels of width columns: element (p, j) goes to
// dst[j/width*width*k + p*width + j%width].
//
// If the rows of x are contiguous, it packs a few rows at a time into all panels: it reads
// few long runs, which the processor prefetches.
func pack[T Float](kn *kernel, dst []T, x matrix[T], k, n, width int) {
	if kn.depth() == 2 {
		packPairs(kn, dst, x, k, n, width)
		return
	}
	if kn.likePairs {
		defer swapPairs(dst, k, n, width)
	}
	if x.col != 1 {
		for j := 0; j < n; j += width {
			if cols, to, from := min(width, n-j), dst[j*k:], x.from(0, j); x.half == nil {
				simd.Transpose(to, width, from.data, from.col, cols, k)
			} else {
				simd.TransposeBF16(floats(to), width, from.half, from.col, cols, k)
			}
		}
		return
	}
	rows := max(16, 4096/n) // a few: of short rows more, so that a call copies much
	for p := 0; p < k; p += rows {
		few := min(rows, k-p)
		for j := 0; j < n; j += width {
			if cols, to, from := min(width, n-j), dst[j*k+p*width:], x.from(p, j); x.half == nil {
				simd.CopyPanel(to, width, from.data, from.row, few, cols)
			} else {
				simd.FromRowsBF16(floats(to), width, from.half, from.row, few, cols)
			}
		}
	}
}

// swapPairs exchanges rows 2p and 2p+1 of panels [k, width], so that tiles add the second product of a pair first.
func swapPairs[T Float](dst []T, k, n, width int) {
	for j := 0; j < n; j += width {
		panel := dst[j*k:]
		for p := 0; p+1 < k; p += 2 {
			x, y := panel[p*width:][:width], panel[(p+1)*width:][:width]
			for i := range x {
				x[i], y[i] = y[i], x[i]
			}
		}
	}
}

// packPairs is pack for pairs of bfloat16 elements in rows 2p and 2p+1: the pair of column j
// goes to dst[j/width*width*kn.steps(k) + p*width + j%width], in the bits of a float32. If k is
// odd, the last row is paired with zeros; pairs beyond it are zeros.
func packPairs[T Float](kn *kernel, dst []T, x matrix[T], k, n, width int) {
	to := halvesOf(dst)
	panel := 2 * kn.steps(k) // elements of each of its columns
	if whole := (k + 1) / 2 * 2; whole < panel {
		for j := 0; j < n; j += width {
			clear(to[j*panel:][whole*width : panel*width])
		}
	}
	if x.col != 1 {
		for j := 0; j < n; j += width {
			simd.TransposePairs(to[j*panel:], 2*width, x.half[j*x.col:], x.col, min(width, n-j), k)
		}
		return
	}
	const rows = 16
	for p := 0; p < k; p += rows {
		few := min(rows, k-p)
		for j := 0; j < n; j += width {
			simd.ZipRows(to[j*panel+p*width:], 2*width, x.half[p*x.row+j:], x.row, few, min(width, n-j))
		}
	}
}

// packStrips writes a [m, k] of bfloat16 to dst for tiles: in strips of kn.rows rows, each in blocks of tilePairs pairs,
// in which a row follows the other. Pair p of row i goes to
//
//	dst[i/kn.rows*kn.rows*kn.steps(k) + p/tilePairs*tilePairs*kn.rows + i%kn.rows*tilePairs + p%tilePairs]
//
// and pairs beyond k are zeros. room is for a block.
func packStrips[T Float](kn *kernel, dst []T, a matrix[T], m, k int, room []T) {
	const cols = 2 * tilePairs // elements of a row of a block
	for i := 0; i < m; i += kn.rows {
		rows := min(kn.rows, m-i)
		for p := 0; p < k; p += cols {
			few := min(cols, k-p)
			block, from := dst[i*kn.steps(k)+p/2*kn.rows:][:kn.rows*tilePairs], a.half[i*a.row+p*a.col:]
			if few < cols {
				clear(block)
			}
			if a.col == 1 {
				simd.CopyRows(halvesOf(block), cols, from, a.row, rows, few)
				continue
			}
			simd.ZipRows(halvesOf(room), 2*kn.rows, from, a.col, few, rows)
			simd.Transpose(block, tilePairs, room, kn.rows, (few+1)/2, rows)
		}
	}
}

// halvesOf returns the memory of s as elements of bfloat16.
func halvesOf[T Float](s []T) []dtype.BF16 {
	return unsafe.Slice((*dtype.BF16)(unsafe.Pointer(unsafe.SliceData(s))), 2*len(s))
}

// pairsOf returns the memory of s as pairs of elements, in the bits of a float32. An odd element is left out.
func pairsOf[T Float](s []dtype.BF16) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(s))), len(s)/2)
}
