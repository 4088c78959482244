package cpu

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// CompareLoop computes dst = op(a, b), one byte of 0 or 1 an element, over
// arguments that broadcast.
func (c *own) CompareLoop(op kernel.CompareOp, dt dtype.DType, dst, a, b unsafe.Pointer, l kernel.Loop) {
	types[dt].compareLoop(op, dst, a, b, l)
}

func compareLoop[T number](op kernel.CompareOp, dst, a, b unsafe.Pointer, l *kernel.Loop) {
	switch op { // a > b is b < a, for NaN too
	case kernel.OpGt, kernel.OpGe:
		a, b, l.A, l.B, op = b, a, l.B, l.A, op-kernel.OpGt+kernel.OpLt
	}
	var same [2][Repeats]T
	n, sa, sb := l.Size[l.N-1], l.A[l.N-1], l.B[l.N-1]
	eachRun(l, func(i, ia, ib, _ int) {
		d := unsafe.Slice(at[bool](dst, i), n)
		x, xs := run(at[T](a, ia), n, sa, same[0][:])
		y, ys := run(at[T](b, ib), n, sb, same[1][:])
		for k := 0; k < n; k += Repeats {
			m := min(Repeats, n-k)
			compareRow(op, d[k:k+m], x[k*xs:][:m], y[k*ys:][:m])
		}
	})
}

// Repeats is how many copies of a broadcast element are made, so that rows can be
// walked in pieces of Repeats elements, all arguments alike.
const Repeats = 64

// run returns n elements at p. If step is 0 it fills same with copies of the element at
// p instead, as many as a piece needs, and advance is 0.
func run[T any](p *T, n, step int, same []T) (elems []T, advance int) {
	if step != 0 {
		return unsafe.Slice(p, n), 1
	}
	same = same[:min(n, len(same))]
	for i := range same {
		same[i] = *p
	}
	return same, 0
}

func compareRow[T number](op kernel.CompareOp, dst []bool, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	switch op {
	case kernel.OpEq:
		for i := range dst {
			dst[i] = a[i] == b[i]
		}
	case kernel.OpNe:
		for i := range dst {
			dst[i] = a[i] != b[i]
		}
	case kernel.OpLt:
		for i := range dst {
			dst[i] = a[i] < b[i]
		}
	case kernel.OpLe:
		for i := range dst {
			dst[i] = a[i] <= b[i]
		}
	default:
		kernel.Missing("the CPU", op)
	}
}

// Where computes dst = cond ? a : b for elements of the given bytes; the loop's C
// is cond's.
func (c *own) Where(elemBytes int, dst, a, b, cond unsafe.Pointer, l kernel.Loop) {
	switch elemBytes {
	case 1:
		where[uint8](dst, a, b, cond, &l)
	case 2:
		where[uint16](dst, a, b, cond, &l)
	case 4:
		where[uint32](dst, a, b, cond, &l)
	case 8:
		where[uint64](dst, a, b, cond, &l)
	}
}

func where[T uint8 | uint16 | uint32 | uint64](dst, a, b, cond unsafe.Pointer, l *kernel.Loop) {
	var same [2][Repeats]T
	var sameCond [Repeats]bool
	last := l.N - 1
	n, sa, sb, sc := l.Size[last], l.A[last], l.B[last], l.C[last]
	eachRun(l, func(i, ia, ib, ic int) {
		d := unsafe.Slice(at[T](dst, i), n)
		x, xs := run(at[T](a, ia), n, sa, same[0][:])
		y, ys := run(at[T](b, ib), n, sb, same[1][:])
		c, cs := run(at[bool](cond, ic), n, sc, sameCond[:])
		for k := 0; k < n; k += Repeats {
			m := min(Repeats, n-k)
			whereRow(d[k:k+m], x[k*xs:][:m], y[k*ys:][:m], c[k*cs:][:m])
		}
	})
}

// whereRow selects by masks, as branches on numbers that nobody foresees take ten times as long.
func whereRow[T uint8 | uint16 | uint32 | uint64](dst, a, b []T, cond []bool) {
	if len(cond) == 0 {
		return
	}
	truth := sliceOf[uint8](unsafe.Pointer(&cond[0]), len(cond)) // 0 or 1
	if words := len(dst) / 8; words > 0 && unsafe.Sizeof(dst[0]) == 1 {
		d, x, y := wordsOf(dst, words), wordsOf(a, words), wordsOf(b, words)
		for i, c := range wordsOf(truth, words) {
			d[i] = y[i] ^ (x[i]^y[i])&(c*0xff)
		}
		dst, a, b, truth = dst[8*words:], a[8*words:], b[8*words:], truth[8*words:]
	}
	a, b, truth = a[:len(dst)], b[:len(dst)], truth[:len(dst)]
	for i := range dst {
		w := b[i]
		dst[i] = w ^ (a[i]^w)&-T(truth[i])
	}
}

// wordsOf returns the first bytes of s in words of eight.
func wordsOf[T any](s []T, words int) []uint64 {
	return sliceOf[uint64](unsafe.Pointer(unsafe.SliceData(s)), words)
}
