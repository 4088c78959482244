package cpu

import (
	"slices"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/simd"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// CompareLoop computes dst = op(a, b), one byte of 0 or 1 an element, over
// arguments that broadcast.
func (c *own) CompareLoop(op kernel.CompareOp, dt dtype.DType, dst, a, b unsafe.Pointer, l kernel.Loop) {
	types[dt].compareLoop(op, dst, a, b, l)
}

// comparisons are those of package simd.
var comparisons = [...]simd.Comparison{
	kernel.OpEq: simd.Equal, kernel.OpNe: simd.NotEqual, kernel.OpLt: simd.Less, kernel.OpLe: simd.LessOrEqual,
}

func compareLoop[T number](op kernel.CompareOp, dst, a, b unsafe.Pointer, l *kernel.Loop) {
	switch op { // a > b is b < a, for NaN too
	case kernel.OpEq, kernel.OpNe, kernel.OpLt, kernel.OpLe:
	case kernel.OpGt, kernel.OpGe:
		a, b, l.A, l.B, op = b, a, l.B, l.A, op-kernel.OpGt+kernel.OpLt
	default:
		kernel.Missing("the CPU", op)
	}
	var same [2][Repeats / 8]uint64
	n, sa, sb := l.Size[l.N-1], l.A[l.N-1], l.B[l.N-1]
	piece := pieceOf[T](n, sa, sb)
	eachRun(l, func(i, ia, ib, _ int) {
		d := unsafe.Slice(at[bool](dst, i), n)
		x, xs := run(at[T](a, ia), n, sa, &same[0])
		y, ys := run(at[T](b, ib), n, sb, &same[1])
		for k := 0; k < n; k += piece {
			m := min(piece, n-k)
			simd.Compare(comparisons[op], d[k:k+m], x[k*xs:][:m], y[k*ys:][:m])
		}
	})
}

// Repeats is how many bytes of copies of a broadcast element are made, so that rows can be walked in pieces, all arguments alike.
const Repeats = 1024

// pieceOf returns the length of these pieces: all of n elements where no argument repeats one.
func pieceOf[T any](n int, steps ...int) int {
	if slices.Contains(steps, 0) {
		return Repeats / int(unsafe.Sizeof(*new(T)))
	}
	return max(n, 1)
}

// run returns n elements at p. If step is 0 it fills same with copies of the element at
// p instead, as many as a piece needs, and advance is 0.
func run[T any](p *T, n, step int, same *[Repeats / 8]uint64) (elems []T, advance int) {
	if step != 0 {
		return unsafe.Slice(p, n), 1
	}
	elems = sliceOf[T](unsafe.Pointer(same), min(n, Repeats/int(unsafe.Sizeof(*p))))
	for i := range elems {
		elems[i] = *p
	}
	return elems, 0
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
	var same [3][Repeats / 8]uint64
	last := l.N - 1
	n, sa, sb, sc := l.Size[last], l.A[last], l.B[last], l.C[last]
	piece := pieceOf[T](n, sa, sb, sc)
	mode := simd.Moving(3 * l.Numel() * int(unsafe.Sizeof(*new(T))))
	eachRun(l, func(i, ia, ib, ic int) {
		d := unsafe.Slice(at[T](dst, i), n)
		x, xs := run(at[T](a, ia), n, sa, &same[0])
		y, ys := run(at[T](b, ib), n, sb, &same[1])
		c, cs := run(at[bool](cond, ic), n, sc, &same[2])
		for k := 0; k < n; k += piece {
			m := min(piece, n-k)
			simd.Where(mode, d[k:k+m], x[k*xs:][:m], y[k*ys:][:m], c[k*cs:][:m])
		}
	})
	mode.Done()
}
