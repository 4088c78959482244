package tensor

import (
	"slices"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/simd"
)

// CopyLoop copies elements of the given bytes: dst[Σ i·A] = src[Σ i·B].
func (c *CPU) CopyLoop(elemBytes int, dst, src unsafe.Pointer, l Loop) {
	if l.Numel() == 0 {
		return
	}
	if l.A[l.N-1] == 1 && l.B[l.N-1] == 1 {
		copyRuns(elemBytes, dst, src, &l)
		return
	}
	if i := slices.Index(l.B[:l.N-1], 1); i >= 0 && l.A[l.N-1] == 1 {
		l.swap(i, l.N-2) // what is contiguous in src next to what is in dst
		switch elemBytes {
		case 1:
			transposeLoop[uint8](dst, src, &l)
		case 2:
			transposeLoop[uint16](dst, src, &l)
		case 4:
			transposeLoop[uint32](dst, src, &l)
		case 8:
			transposeLoop[uint64](dst, src, &l)
		}
		return
	}
	switch elemBytes {
	case 1:
		copyElems[uint8](dst, src, &l)
	case 2:
		copyElems[uint16](dst, src, &l)
	case 4:
		copyElems[uint32](dst, src, &l)
	case 8:
		copyElems[uint64](dst, src, &l)
	}
}

// swap exchanges dimensions i and j.
func (l *Loop) swap(i, j int) {
	l.Size[i], l.Size[j] = l.Size[j], l.Size[i]
	l.A[i], l.A[j] = l.A[j], l.A[i]
	l.B[i], l.B[j] = l.B[j], l.B[i]
}

// transposeLoop copies matrices of the last two dimensions, rows being contiguous
// in src and columns in dst.
func transposeLoop[T any](dst, src unsafe.Pointer, l *Loop) {
	r, c := l.N-2, l.N-1
	l.pairs(l.N-2, func(a, b int) {
		transpose(at[T](dst, a), at[T](src, b), l.Size[c], l.Size[r], l.A[r], l.B[c])
	})
}

// transpose computes dst[j·dstStep + i] = src[i·srcStep + j] for i < rows, j < cols:
// a tile of 16·16 at a time through memory in the first cache, so that each cache
// line is read and written once.
func transpose[T any](dst, src *T, rows, cols, dstStep, srcStep int) {
	const tile = 16
	d, s := unsafe.Pointer(dst), unsafe.Pointer(src)
	var buf [tile][tile]T
	for i := 0; i < rows; i += tile {
		for j := 0; j < cols; j += tile {
			if i+tile > rows || j+tile > cols {
				for k := j; k < min(j+tile, cols); k++ {
					for m := i; m < min(i+tile, rows); m++ {
						*at[T](d, k*dstStep+m) = *at[T](s, m*srcStep+k)
					}
				}
				continue
			}
			for m := range tile {
				for k, v := range (*[tile]T)(unsafe.Pointer(at[T](s, (i+m)*srcStep+j))) {
					buf[k][m] = v
				}
			}
			for k := range tile {
				*(*[tile]T)(unsafe.Pointer(at[T](d, (j+k)*dstStep+i))) = buf[k]
			}
		}
	}
}

// copyRuns copies runs of the last dimension.
func copyRuns(elemBytes int, dst, src unsafe.Pointer, l *Loop) {
	n := l.Size[l.N-1] * elemBytes
	l.pairs(l.N-1, func(a, b int) {
		simd.Copy(unsafe.Slice((*byte)(unsafe.Add(dst, a*elemBytes)), n), unsafe.Slice((*byte)(unsafe.Add(src, b*elemBytes)), n))
	})
}

// copyElems copies one element at a time.
func copyElems[T any](dst, src unsafe.Pointer, l *Loop) {
	n, sa, sb := l.Size[l.N-1], l.A[l.N-1], l.B[l.N-1]
	l.pairs(l.N-1, func(a, b int) {
		for k := range n {
			*at[T](dst, a+k*sa) = *at[T](src, b+k*sb)
		}
	})
}

// pairs calls f for each index of the first n dimensions with the distances it
// means for a and b.
func (l *Loop) pairs(n int, f func(a, b int)) {
	total := 1
	for _, s := range l.Size[:n] {
		total *= s
	}
	var at [MaxDims]int
	for a, b := 0, 0; total > 0; total-- {
		f(a, b)
		for d := n - 1; d >= 0; d-- {
			at[d]++
			a, b = a+l.A[d], b+l.B[d]
			if at[d] < l.Size[d] {
				break
			}
			at[d] = 0
			a, b = a-l.A[d]*l.Size[d], b-l.B[d]*l.Size[d]
		}
	}
}
