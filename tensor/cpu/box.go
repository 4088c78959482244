package cpu

import (
	"slices"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/simd"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// CopyLoop copies elements of the given bytes: dst[Σ i·A] = src[Σ i·B].
func (c *own) CopyLoop(elemBytes int, dst, src unsafe.Pointer, l kernel.Loop) {
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

// longRun is how many copies of an element are worth a call.
const longRun = 16

// copyLoop copies rows, transposes matrices or copies one element at a time.
func copyLoop[T simd.Elem](dst, src unsafe.Pointer, l *kernel.Loop) {
	last := l.N - 1
	switch i := slices.Index(l.B[:last], 1); {
	case l.A[last] != 1 || l.B[last] == 0 && l.Size[last] >= longRun:
		copyElems[T](dst, src, l)
	case l.B[last] == 1:
		copyRows[T](dst, src, l)
	case i >= 0:
		swap(l, i, last-1) // the dimension contiguous in src, next to the one contiguous in dst
		r, c := last-1, last
		eachPair(l, r, func(a, b int) {
			d := sliceOf[T](unsafe.Pointer(at[T](dst, a)), (l.Size[r]-1)*l.A[r]+l.Size[c])
			s := sliceOf[T](unsafe.Pointer(at[T](src, b)), (l.Size[c]-1)*l.B[c]+l.Size[r])
			simd.Transpose(d, l.A[r], s, l.B[c], l.Size[c], l.Size[r])
		})
	default:
		copyElems[T](dst, src, l)
	}
}

// swap exchanges dimensions i and j.
func swap(l *kernel.Loop, i, j int) {
	l.Size[i], l.Size[j] = l.Size[j], l.Size[i]
	l.A[i], l.A[j] = l.A[j], l.A[i]
	l.B[i], l.B[j] = l.B[j], l.B[i]
}

// copyRows copies rows that are contiguous on both sides.
func copyRows[T simd.Elem](dst, src unsafe.Pointer, l *kernel.Loop) {
	n := l.Size[l.N-1]
	if l.N == 1 {
		simd.Copy(sliceOf[T](dst, n), sliceOf[T](src, n))
		return
	}
	r := l.N - 2
	if l.B[r] < 0 {
		eachPair(l, l.N-1, func(a, b int) {
			simd.Copy(sliceOf[T](unsafe.Pointer(at[T](dst, a)), n), sliceOf[T](unsafe.Pointer(at[T](src, b)), n))
		})
		return
	}
	eachPair(l, r, func(a, b int) {
		d := sliceOf[T](unsafe.Pointer(at[T](dst, a)), (l.Size[r]-1)*l.A[r]+n)
		s := sliceOf[T](unsafe.Pointer(at[T](src, b)), (l.Size[r]-1)*l.B[r]+n)
		simd.CopyRows(d, l.A[r], s, l.B[r], l.Size[r], n)
	})
}

// copyElems copies one element at a time.
func copyElems[T simd.Elem](dst, src unsafe.Pointer, l *kernel.Loop) {
	n, sa, sb := l.Size[l.N-1], l.A[l.N-1], l.B[l.N-1]
	eachPair(l, l.N-1, func(a, b int) {
		switch d := sliceOf[T](unsafe.Pointer(at[T](dst, a)), n); {
		case sa == 1 && sb == 0:
			simd.Fill(d, *at[T](src, b))
			return
		case sa == 1 && sb == -1:
			simd.Reverse(d, sliceOf[T](unsafe.Pointer(at[T](src, b-n+1)), n))
			return
		}
		for k := range n {
			*at[T](dst, a+k*sa) = *at[T](src, b+k*sb)
		}
	})
}

// eachPair calls f for each index of the first n dimensions with its offsets in a and b.
func eachPair(l *kernel.Loop, n int, f func(a, b int)) {
	var at [kernel.MaxDims]int
	for total, a, b := ints.Product(l.Size[:n]), 0, 0; total > 0; total-- {
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

// eachRun calls f for each run of the last dimension with the offsets of its first
// elements: i of the destination, a, b and c of the arguments.
func eachRun(l *kernel.Loop, f func(i, a, b, c int)) {
	last := l.N - 1
	n := l.Size[last]
	total := l.Numel()
	if total == 0 {
		return
	}
	if last == 0 {
		f(0, 0, 0, 0)
		return
	}
	var at [kernel.MaxDims]int
	for i, a, b, c := 0, 0, 0, 0; ; {
		f(i, a, b, c)
		if i += n; i >= total {
			return
		}
		for d := last - 1; d >= 0; d-- {
			at[d]++
			a, b, c = a+l.A[d], b+l.B[d], c+l.C[d]
			if at[d] < l.Size[d] {
				break
			}
			at[d] = 0
			a, b, c = a-l.A[d]*l.Size[d], b-l.B[d]*l.Size[d], c-l.C[d]*l.Size[d]
		}
	}
}
