package comm

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// foldBytes is how much of each buffer a fold takes at a time: a block of the
// result stays in the first-level cache (32 KiB or more) until it is stored.
const foldBytes = 8 << 10

// Fold is the arithmetic of c, for backends: for each of n elements
//
//	x := srcs[0][i] op srcs[1][i] op …   from left to right
//	every dsts[k][i] = x                 divided by len(srcs) for Avg
//
// where for a Func an element is one of its own. dsts[0] may be srcs[0], of two
// srcs and without a Func either, and each other dst any src; buffers do not overlap
// otherwise.
func (c *Call) Fold(dsts, srcs []unsafe.Pointer, n int) {
	if c.Op == Custom {
		c.foldFunc(dsts, srcs, n)
		return
	}
	switch c.DType() {
	case Float32:
		foldNumbers(c.Op, dsts, srcs, n, arith[float32])
	case Float64:
		foldNumbers(c.Op, dsts, srcs, n, arith[float64])
	case Float16:
		foldHalves[dtype.F16](c.Op, dsts, srcs, n)
	case BFloat16:
		foldHalves[dtype.BF16](c.Op, dsts, srcs, n)
	case Int8:
		foldNumbers(c.Op, dsts, srcs, n, bitwise[int8])
	case Int16:
		foldNumbers(c.Op, dsts, srcs, n, bitwise[int16])
	case Int32:
		foldNumbers(c.Op, dsts, srcs, n, bitwise[int32])
	case Int64:
		foldNumbers(c.Op, dsts, srcs, n, bitwise[int64])
	case Uint8, Bool: // a bool is 0 or 1: min and and, max and or are the same on it
		foldNumbers(c.Op, dsts, srcs, n, bitwise[uint8])
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

// foldNumbers is Fold for types that are folded as they are.
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

// few is up to how many elements a loop beats a call of the vector units.
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
	}
}

// bitwise is arith with And and Or.
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
	default:
		arith(op, dst, a, b)
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

// foldFunc is Fold by the user's operation.
func (c *Call) foldFunc(dsts, srcs []unsafe.Pointer, n int) {
	size := c.Func.size
	step := max(1, foldBytes/size)
	for lo := 0; lo < n; lo += step {
		hi := min(lo+step, n)
		acc := part[byte](dsts[0], lo*size, hi*size)
		if dsts[0] != srcs[0] {
			copy(acc, part[byte](srcs[0], lo*size, hi*size))
		}
		for _, s := range srcs[1:] {
			c.Func.combine(unsafe.Pointer(unsafe.SliceData(acc)), unsafe.Add(s, lo*size), hi-lo)
		}
		spread(acc, dsts, lo*size, hi*size)
	}
}

// Unit returns the bytes of one element that Fold counts.
func (c *Call) Unit() int {
	if c.Op == Custom && c.Func != nil {
		return c.Func.size
	}
	return c.DType().Size()
}
