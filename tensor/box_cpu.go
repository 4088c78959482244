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
	switch elemBytes {
	case 1:
		copyLoop[uint8](dst, src, &l)
	case 2:
		copyLoop[uint16](dst, src, &l)
	case 4:
		copyLoop[int32](dst, src, &l)
	case 8:
		copyLoop[int64](dst, src, &l)
	}
}

// copyLoop copies rows, turns matrices or copies one element at a time.
func copyLoop[T simd.Elem](dst, src unsafe.Pointer, l *Loop) {
	last := l.N - 1
	switch i := slices.Index(l.B[:last], 1); {
	case l.A[last] != 1:
		copyElems[T](dst, src, l)
	case l.B[last] == 1:
		copyRows[T](dst, src, l)
	case i >= 0:
		l.swap(i, last-1) // what is contiguous in src next to what is in dst
		r, c := last-1, last
		l.pairs(r, func(a, b int) {
			d := sliceOf[T](unsafe.Pointer(at[T](dst, a)), (l.Size[r]-1)*l.A[r]+l.Size[c])
			s := sliceOf[T](unsafe.Pointer(at[T](src, b)), (l.Size[c]-1)*l.B[c]+l.Size[r])
			simd.Transpose(d, l.A[r], s, l.B[c], l.Size[c], l.Size[r])
		})
	default:
		copyElems[T](dst, src, l)
	}
}

// swap exchanges dimensions i and j.
func (l *Loop) swap(i, j int) {
	l.Size[i], l.Size[j] = l.Size[j], l.Size[i]
	l.A[i], l.A[j] = l.A[j], l.A[i]
	l.B[i], l.B[j] = l.B[j], l.B[i]
}

// copyRows copies rows that are contiguous on both sides.
func copyRows[T simd.Elem](dst, src unsafe.Pointer, l *Loop) {
	n := l.Size[l.N-1]
	if l.N == 1 {
		simd.Copy(sliceOf[T](dst, n), sliceOf[T](src, n))
		return
	}
	r := l.N - 2
	l.pairs(r, func(a, b int) {
		d := sliceOf[T](unsafe.Pointer(at[T](dst, a)), (l.Size[r]-1)*l.A[r]+n)
		s := sliceOf[T](unsafe.Pointer(at[T](src, b)), (l.Size[r]-1)*l.B[r]+n)
		simd.CopyRows(d, l.A[r], s, l.B[r], l.Size[r], n)
	})
}

// copyElems copies one element at a time.
func copyElems[T any](dst, src unsafe.Pointer, l *Loop) {
	n, sa, sb := l.Size[l.N-1], l.A[l.N-1], l.B[l.N-1]
	l.pairs(l.N-1, func(a, b int) {
		if sa == 1 && sb == 0 {
			v := *at[T](src, b)
			for k, d := 0, sliceOf[T](unsafe.Pointer(at[T](dst, a)), n); k < n; k++ {
				d[k] = v
			}
			return
		}
		for k := range n {
			*at[T](dst, a+k*sa) = *at[T](src, b+k*sb)
		}
	})
}

// pairs calls f for each index of the first n dimensions with the distances it
// means for a and b.
func (l *Loop) pairs(n int, f func(a, b int)) {
	total := product(l.Size[:n])
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
