package tensor

import "unsafe"

// CopyLoop copies elements of the given bytes: dst[Σ i·A] = src[Σ i·B].
func (c *CPU) CopyLoop(elemBytes int, dst, src unsafe.Pointer, l Loop) {
	if l.Numel() == 0 {
		return
	}
	if l.A[l.N-1] == 1 && l.B[l.N-1] == 1 {
		copyRuns(elemBytes, dst, src, &l)
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

// copyRuns copies runs of the last dimension.
func copyRuns(elemBytes int, dst, src unsafe.Pointer, l *Loop) {
	n := l.Size[l.N-1] * elemBytes
	l.pairs(l.N-1, func(a, b int) {
		copy(unsafe.Slice((*byte)(unsafe.Add(dst, a*elemBytes)), n), unsafe.Slice((*byte)(unsafe.Add(src, b*elemBytes)), n))
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
