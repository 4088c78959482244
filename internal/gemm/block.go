package gemm

import (
	"sync"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// The blocks of the packed algorithm, in elements. A panel of B, blockK by a
// tile's columns, stays in the first cache while the tiles of a block of A pass
// over it. The block of A stays in the second cache, that of B, which is read once for each block of A, in the third.
//
// blockK also fixes the order of each sum, so it is the same for every instruction set.
// For pairs of bfloat16 it counts pairs.
const (
	blockK = 256
	blockM = 336 // a multiple of every kernel's rows but of those of AMX
	blockN = 2048
)

// smallOperand is the most elements of an operand that is not packed even if many tiles
// read it.
const smallOperand = 1 << 15

// page is how many bytes apart rows compete for the same lines of the first cache.
const page = 4096

// mostCols is the most columns that a tile has of float32.
const mostCols = 32

// A workspace holds the packed blocks of one product, and room for a tile. A pair of bfloat16 takes the place of a float32.
type workspace[T Float] struct {
	a    [blockM * blockK]T
	b    [blockN * blockK]T
	room [2 * tilePairs * mostCols]T
}

// Workspaces are pooled: they hold nothing between calls.
var (
	pool32 = sync.Pool{New: func() any { return new(workspace[float32]) }}
	pool64 = sync.Pool{New: func() any { return new(workspace[float64]) }}
)

// poolOf returns the pool of an element type.
func poolOf[T Float]() *sync.Pool {
	var zero T
	if _, ok := any(zero).(float32); ok {
		return &pool32
	}
	return &pool64
}

// blocked does C = alpha·A·B + beta·C, no size being 0.
//
// It packs blocks of A and B so that the tiles read both in order, as in Goto
// and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008.
// An operand that is read too few times to be worth packing is not packed; nor is a
// small one, unless its rows compete for the same cache lines. For tiles of float32 an A of bfloat16
// that is not worth packing is widened in blocks, and such a B is read by the tiles if few rows are
// made of it. Tiles of pairs read an A of any size whose rows are pairs, unless these compete. Else bfloat16 always is packed.
//
// With t it does the part of a pairwise sum that t says. Then, and for a C of bfloat16, which is rounded tile by tile, all of k has to
// be one block.
func blocked[T Float](kn *kernel, m, n, k int, alpha T, a, b matrix[T], beta T, c matrix[T], t *tree[T]) {
	once := n <= 2*kn.cols // A is read, or twice
	inPlaceA := a.half == nil && (once || m*k <= smallOperand && a.row*int(unsafe.Sizeof(alpha))%page != 0)
	lies := a // in pairs if tiles read pairs
	if a.half != nil && kn.depth() == 2 && a.col == 1 && a.row%2 == 0 && k%2 == 0 && a.row*2%page != 0 {
		lies, inPlaceA = matrix[T]{pairsOf[T](a.half), nil, a.row / 2, 1}, true
	}
	widenA := a.half != nil && kn.depth() == 1 && !kn.likePairs && (once || m*k <= smallOperand)
	inPlaceB := b.col == 1 && (m <= 2*kn.rows || k*n <= smallOperand)
	if b.half != nil {
		inPlaceB = b.col == 1 && m <= 2*kn.rows && kn.halfB != nil && t == nil
	}
	var ws *workspace[T]
	var room []T
	if !inPlaceA || !inPlaceB || c.half != nil {
		pool := poolOf[T]()
		ws = pool.Get().(*workspace[T])
		defer pool.Put(ws)
		room = ws.room[:]
	}
	stepN := blockN
	if !inPlaceB && m <= 2*kn.rows { // a panel is read once or twice: while it is in the first cache
		stepN = 4 * kn.cols
	}
	mPacked := ints.RoundUp(m, kn.rows)
	packOnce := mPacked*kn.steps(k) <= blockM*blockK // all of A fits
	if n <= stepN {
		packOnce = false // it is packed once anyhow: always at the same place
	}
	stepK, stepM := kn.stepK(), blockM
	if t != nil {
		stepK = k
	}
	if widenA && (once || k*n <= smallOperand) { // so few rows are in the first cache when tiles read them
		stepM = 2 * kn.rows
	}
	var ap, bp panels[T]
	for j := 0; j < n; j += stepN {
		nb := min(stepN, n-j)
		for p := 0; p < k; p += stepK {
			kb := min(stepK, k-p)
			steps := kn.steps(kb)
			if inPlaceB {
				bp = panels[T]{b.from(p, j), kn.cols}
			} else {
				bp = packB(kn, ws, b.from(p, j), kb, nb)
			}
			beta := beta
			if p > 0 {
				beta = 1
			}
			for i := 0; i < m; i += stepM {
				mb := min(stepM, m-i)
				at, done := 0, packOnce && j > 0
				if packOnce {
					at = kn.steps(p)*mPacked + i*steps
				}
				switch {
				case inPlaceA:
					ap = panels[T]{lies.from(i, kn.steps(p)), kn.rows * lies.row}
				case widenA:
					ap = widened(kn, ws.a[at:], a.half[i*a.row+p*a.col:], a.row, a.col, mb, kb, done)
				default:
					ap = packA(kn, ws, at, a.from(i, p), mb, kb, done)
				}
				macro(kn, i, j, mb, nb, steps, alpha, &ap, &bp, beta, &c, t, room)
			}
		}
	}
}

// Panels are a block of A cut into strips of a tile's rows, or one of B cut into
// strips of a tile's columns: strip q starts at data[q*step], and within it
// elements lie as in a matrix.
type panels[T Float] struct {
	matrix[T]
	step int
}

// packB writes b [k, n] to ws.b in panels [k, kn.cols].
func packB[T Float](kn *kernel, ws *workspace[T], b matrix[T], k, n int) panels[T] {
	pack(kn, ws.b[:], b, k, n, kn.cols)
	return panels[T]{matrix[T]{ws.b[:], nil, kn.cols, 1}, kn.steps(k) * kn.cols}
}

// packA writes a [m, k] to ws.a, from element at on, in panels [k, kn.rows], unless that is done.
func packA[T Float](kn *kernel, ws *workspace[T], at int, a matrix[T], m, k int, done bool) panels[T] {
	dst := ws.a[at:]
	if !done {
		pack(kn, dst, a.transposed(), k, m, kn.rows)
	}
	return panels[T]{matrix[T]{dst, nil, 1, kn.rows}, kn.steps(k) * kn.rows}
}

// widened writes a [m, k] of bfloat16 with strides row and col to dst as it lies, unless that is done, and returns its
// strips of kn.rows rows. T is float32.
func widened[T Float](kn *kernel, dst []T, a []dtype.BF16, row, col, m, k int, done bool) panels[T] {
	to, step, rows, cols := panels[T]{matrix[T]{dst, nil, k, 1}, kn.rows * k}, row, m, k
	if col != 1 {
		to, step, rows, cols = panels[T]{matrix[T]{dst, nil, 1, m}, kn.rows}, col, k, m
	}
	if !done {
		simd.FromRowsBF16(floats(dst), cols, a, step, rows, cols)
	}
	return to
}

// macro multiplies a block of A [m, k] with a block of B [k, n], tile by tile, into the block of C at row and col; k counts
// steps. With a tree, C is the tree's part of C. Where no tile of the kernel rounds to a C of bfloat16 itself, each is added up
// in room first.
func macro[T Float](kn *kernel, row, col, m, n, k int, alpha T, a, b *panels[T], beta T, c *matrix[T], t *tree[T], room []T) {
	var none parts[T]
	for j, bq := 0, 0; j < n; j, bq = j+kn.cols, bq+b.step {
		cols := min(kn.cols, n-j)
		for i, aq := 0, 0; i < m; i, aq = i+kn.rows, aq+a.step {
			rows, at, in := min(kn.rows, m-i), a.data[aq:], (row+i)*c.row+col+j
			if c.half != nil && b.half == nil && beta == 0 && kn.halfC != nil {
				kn.halfC(rows, cols, k, floats(at), a.row, a.col, floats(b.data[bq:]), b.row, c.half[in:], c.row, float32(alpha))
				continue
			}
			to, ld := room, kn.cols
			switch {
			case c.half == nil:
				to, ld = c.data[in:], c.row
			case beta != 0:
				simd.FromRowsBF16(floats(room), kn.cols, c.half[in:], c.row, rows, cols)
			}
			switch {
			case t != nil:
				t.tile(kn, rows, cols, k, at, a.row, a.col, b.data[bq:], b.row, to, ld, alpha, row+i, col+j)
			case b.half != nil:
				kn.halfB(rows, cols, k, floats(at), a.row, a.col, b.half[bq:], b.row, floats(to), ld, float32(alpha), float32(beta))
			default:
				tile(kn, rows, cols, k, at, a.row, a.col, b.data[bq:], b.row, to, ld, alpha, beta, &none)
			}
			if c.half != nil {
				simd.ToRowsBF16(c.half[in:], c.row, floats(room), kn.cols, rows, cols)
			}
		}
	}
}

// floats returns s; T is float32.
func floats[T Float](s []T) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(s))), len(s))
}
