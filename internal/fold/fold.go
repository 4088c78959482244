// Package fold is the arithmetic of reductions: it folds the ranks' values from the left.
package fold

import (
	"fmt"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// foldBytes is how many bytes of each buffer a fold reads at a time: a block of the
// result stays in the first-level cache (32 KiB or more) until it is stored.
const foldBytes = 8 << 10

// Elements sets, for each of n elements of type d,
//
//	x := srcs[0][i] op srcs[1][i] op …   from left to right
//	every dsts[k][i] = x                 divided by len(srcs) for Avg
//
// dsts[0] may be srcs[0], or either src if there are two. Each other dst may be any src.
// Other buffers do not overlap.
func Elements(op Op, d dtype.DType, dsts, srcs []unsafe.Pointer, n int) {
	switch d {
	case dtype.Float32:
		foldNumbers(op, dsts, srcs, n, arith[float32])
	case dtype.Float64:
		foldNumbers(op, dsts, srcs, n, arith[float64])
	case dtype.Float16:
		foldHalves[dtype.F16](op, dsts, srcs, n)
	case dtype.BFloat16:
		foldHalves[dtype.BF16](op, dsts, srcs, n)
	case dtype.Int8:
		foldNumbers(op, dsts, srcs, n, bitwise[int8])
	case dtype.Int16:
		foldNumbers(op, dsts, srcs, n, bitwise[int16])
	case dtype.Int32:
		foldNumbers(op, dsts, srcs, n, bitwise[int32])
	case dtype.Int64:
		foldNumbers(op, dsts, srcs, n, bitwise[int64])
	case dtype.Uint8, dtype.Bool: // a bool is 0 or 1: min and and, max and or are the same on it
		foldNumbers(op, dsts, srcs, n, bitwise[uint8])
	case dtype.Uint16:
		foldUnsigned[uint16](op, dtype.Int16, dsts, srcs, n)
	case dtype.Uint32:
		foldUnsigned[uint32](op, dtype.Int32, dsts, srcs, n)
	case dtype.Uint64:
		foldUnsigned[uint64](op, dtype.Int64, dsts, srcs, n)
	case dtype.Complex64:
		foldComplex[complex64](op, dtype.Float32, dsts, srcs, n)
	case dtype.Complex128:
		foldComplex[complex128](op, dtype.Float64, dsts, srcs, n)
	default:
		panic(fmt.Sprintf("comm: no fold of elements of type %d", uint8(d)))
	}
}

type number interface {
	float32 | float64 | int8 | int16 | int32 | int64 | uint8
}

type integer interface {
	int8 | int16 | int32 | int64 | uint8
}

// part is elements lo to hi of the T at p.
func part[T any](p unsafe.Pointer, lo, hi int) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Add(p, lo*int(unsafe.Sizeof(zero)))), hi-lo)
}

// spread copies the finished block to the other dsts.
func spread[T any](acc []T, dsts []unsafe.Pointer, lo, hi int) {
	for _, d := range dsts[1:] {
		copy(part[T](d, lo, hi), acc)
	}
}

// foldNumbers is Elements for types that need no conversion.
func foldNumbers[T number](op Op, dsts, srcs []unsafe.Pointer, n int, combine func(op Op, dst, a, b []T)) {
	if len(dsts) == 2 && len(srcs) == 2 && op == Sum { // two ranks: read once, store once
		simd.Add2(part[T](dsts[0], 0, n), part[T](dsts[1], 0, n), part[T](srcs[0], 0, n), part[T](srcs[1], 0, n))
		return
	}
	if len(dsts) == 1 && len(srcs) == 2 && op == Sum && n > few { // likewise
		simd.Add(part[T](dsts[0], 0, n), part[T](srcs[0], 0, n), part[T](srcs[1], 0, n))
		return
	}
	if n <= few && op <= Max {
		foldFew[T](op, dsts, srcs, n)
		return
	}
	var zero T
	step := foldBytes / int(unsafe.Sizeof(zero))
	for lo := 0; lo < n; lo += step {
		hi := min(lo+step, n)
		acc := part[T](dsts[0], lo, hi)
		first := part[T](srcs[0], lo, hi)
		for _, s := range srcs[1:] {
			combine(op, acc, first, part[T](s, lo, hi))
			first = acc
		}
		if len(srcs) == 1 {
			copy(acc, first)
		}
		if op == Avg {
			divide(acc, len(srcs))
		}
		spread(acc, dsts, lo, hi)
	}
}

// few is the largest number of elements for which a plain loop is faster than package simd.
const few = 8

// foldFew is foldNumbers for the operations up to Max, element by element.
func foldFew[T number](op Op, dsts, srcs []unsafe.Pointer, n int) {
	first := part[T](srcs[0], 0, n)
	for i := range n {
		x := first[i]
		for _, s := range srcs[1:] {
			y := *(*T)(unsafe.Add(s, i*int(unsafe.Sizeof(x))))
			switch op {
			case Sum, Avg:
				x += y
			case Prod:
				x *= y
			case Min:
				x = min(x, y)
			case Max:
				x = max(x, y)
			default:
				panic(unknownOp(op))
			}
		}
		if op == Avg {
			x /= T(len(srcs))
		}
		for _, d := range dsts {
			*(*T)(unsafe.Add(d, i*int(unsafe.Sizeof(x)))) = x
		}
	}
}

// arith sets dst[i] = a[i] op b[i].
func arith[T number](op Op, dst, a, b []T) {
	switch op {
	case Sum, Avg:
		simd.Add(dst, a, b)
	case Prod:
		simd.Mul(dst, a, b)
	case Min:
		simd.Min(dst, a, b)
	case Max:
		simd.Max(dst, a, b)
	default:
		panic(unknownOp(op))
	}
}

// foldUnsigned folds unsigned integers. It differs from the fold of the signed type of the
// same size only in Max and Min.
func foldUnsigned[T uint16 | uint32 | uint64](op Op, signed dtype.DType, dsts, srcs []unsafe.Pointer, n int) {
	switch op {
	case Min:
		foldEach(dsts, srcs, n, func(a, b T) T { return min(a, b) })
	case Max:
		foldEach(dsts, srcs, n, func(a, b T) T { return max(a, b) })
	default:
		Elements(op, signed, dsts, srcs, n)
	}
}

// foldComplex folds complex numbers, whose parts have type part. Sum and Avg are those of the
// parts.
func foldComplex[T complex64 | complex128](op Op, part dtype.DType, dsts, srcs []unsafe.Pointer, n int) {
	switch op {
	case Sum, Avg:
		Elements(op, part, dsts, srcs, 2*n)
	case Prod:
		foldEach(dsts, srcs, n, func(a, b T) T { return a * b })
	default:
		panic(unknownOp(op))
	}
}

// foldEach folds element by element.
func foldEach[T any](dsts, srcs []unsafe.Pointer, n int, combine func(a, b T) T) {
	at := func(p unsafe.Pointer, i int) *T { return (*T)(unsafe.Add(p, i*int(unsafe.Sizeof(*(*T)(nil))))) }
	for i := range n {
		x := *at(srcs[0], i)
		for _, s := range srcs[1:] {
			x = combine(x, *at(s, i))
		}
		for _, d := range dsts {
			*at(d, i) = x
		}
	}
}

// unknownOp is the panic of a fold that lacks op. It is a bug: Accepts refuses every
// operation without a fold.
func unknownOp(op Op) string {
	return fmt.Sprintf("comm: no fold by operation %d (%v)", uint8(op), op)
}

// bitwise is arith with And, Or and Xor.
func bitwise[T integer](op Op, dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	switch op {
	case And:
		for i := range dst {
			dst[i] = a[i] & b[i]
		}
	case Or:
		for i := range dst {
			dst[i] = a[i] | b[i]
		}
	case Xor:
		for i := range dst {
			dst[i] = a[i] ^ b[i]
		}
	case Sum, Avg, Prod, Min, Max:
		arith(op, dst, a, b)
	default:
		panic(unknownOp(op))
	}
}

// divide sets x[i] /= n.
func divide[T number](x []T, n int) {
	if n&(n-1) == 0 { // the reciprocal of a power of two is exact
		switch x := any(x).(type) {
		case []float32:
			simd.Scale(x, x, 1/float32(n))
			return
		case []float64:
			simd.Scale(x, x, 1/float64(n))
			return
		}
	}
	for i := range x {
		x[i] /= T(n)
	}
}

type half interface{ dtype.F16 | dtype.BF16 }

// widen and round name the functions that they call, so that the caller's blocks
// can stay on its stack.
func widen[T half](dst []float32, src []T) {
	switch src := any(src).(type) {
	case []dtype.F16:
		simd.FromF16(dst, src)
	case []dtype.BF16:
		simd.FromBF16(dst, src)
	}
}

func round[T half](dst []T, src []float32) {
	switch dst := any(dst).(type) {
	case []dtype.F16:
		simd.ToF16(dst, src)
	case []dtype.BF16:
		simd.ToBF16(dst, src)
	}
}

// foldHalves folds in float32 and rounds once.
func foldHalves[T half](op Op, dsts, srcs []unsafe.Pointer, n int) {
	var wide, next [512]float32
	for lo := 0; lo < n; lo += len(wide) {
		hi := min(lo+len(wide), n)
		acc, b := wide[:hi-lo], next[:hi-lo]
		widen(acc, part[T](srcs[0], lo, hi))
		for _, s := range srcs[1:] {
			widen(b, part[T](s, lo, hi))
			arith(op, acc, acc, b)
		}
		if op == Avg {
			divide(acc, len(srcs))
		}
		out := part[T](dsts[0], lo, hi)
		round(out, acc)
		spread(out, dsts, lo, hi)
	}
}

// Func is Elements for a user's operation on elements of size bytes: combine sets
// dst[i] = dst[i] op src[i]. dsts[0] may be srcs[0].
func Func(combine func(dst, src unsafe.Pointer, n int), size int, dsts, srcs []unsafe.Pointer, n int) {
	step := max(1, foldBytes/size)
	for lo := 0; lo < n; lo += step {
		hi := min(lo+step, n)
		acc := part[byte](dsts[0], lo*size, hi*size)
		if dsts[0] != srcs[0] {
			copy(acc, part[byte](srcs[0], lo*size, hi*size))
		}
		for _, s := range srcs[1:] {
			combine(unsafe.Pointer(unsafe.SliceData(acc)), unsafe.Add(s, lo*size), hi-lo)
		}
		spread(acc, dsts, lo*size, hi*size)
	}
}
