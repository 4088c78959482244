package comm

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
)

// foldBytes is how much of each buffer a fold takes at a time: a block of the
// result stays in the first-level cache (32 KiB or more) until it is stored.
const foldBytes = 8 << 10

// Fold is the arithmetic of c, for backends: for each of n elements
//
//	x := srcs[0][i] op srcs[1][i] op …   from left to right
//	every dsts[k][i] = x                 divided by len(srcs) for Avg
//
// where for a Func an element is one of its own. dsts[0] may be srcs[0], and
// each other dst any src; buffers do not overlap otherwise.
func (c *Call) Fold(dsts, srcs []unsafe.Pointer, n int) {
	if c.Op == Custom {
		c.foldFunc(dsts, srcs, n)
		return
	}
	switch c.DType() {
	case Float32:
		foldNumbers[float32](c.Op, dsts, srcs, n)
	case Float64:
		foldNumbers[float64](c.Op, dsts, srcs, n)
	case Float16:
		foldHalves(c.Op, dsts, srcs, n, dtype.ToF16)
	case BFloat16:
		foldHalves(c.Op, dsts, srcs, n, dtype.ToBF16)
	case Int8:
		foldInts[int8](c.Op, dsts, srcs, n)
	case Int16:
		foldInts[int16](c.Op, dsts, srcs, n)
	case Int32:
		foldInts[int32](c.Op, dsts, srcs, n)
	case Int64:
		foldInts[int64](c.Op, dsts, srcs, n)
	case Uint8, Bool: // a bool is 0 or 1: min and and, max and or are the same on it
		foldInts[uint8](c.Op, dsts, srcs, n)
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

// begin sets acc, the first dst's block, to the first src's.
func begin[T any](dsts, srcs []unsafe.Pointer, lo, hi int) []T {
	acc := part[T](dsts[0], lo, hi)
	if dsts[0] != srcs[0] {
		copy(acc, part[T](srcs[0], lo, hi))
	}
	return acc
}

// spread copies the finished block to the other dsts.
func spread[T any](acc []T, dsts []unsafe.Pointer, lo, hi int) {
	for _, d := range dsts[1:] {
		copy(part[T](d, lo, hi), acc)
	}
}

// foldNumbers is Fold for the operations that numbers have.
func foldNumbers[T number](op Op, dsts, srcs []unsafe.Pointer, n int) {
	var zero T
	step := foldBytes / int(unsafe.Sizeof(zero))
	for lo := 0; lo < n; lo += step {
		hi := min(lo+step, n)
		acc := begin[T](dsts, srcs, lo, hi)
		for _, s := range srcs[1:] {
			arith(op, acc, part[T](s, lo, hi))
		}
		if op == Avg {
			p := T(len(srcs))
			for i := range acc {
				acc[i] /= p
			}
		}
		spread(acc, dsts, lo, hi)
	}
}

// arith sets acc[i] = acc[i] op b[i].
func arith[T number](op Op, acc, b []T) {
	b = b[:len(acc)]
	switch op {
	case Sum, Avg:
		for i := range acc {
			acc[i] += b[i]
		}
	case Prod:
		for i := range acc {
			acc[i] *= b[i]
		}
	case Min:
		for i := range acc {
			acc[i] = min(acc[i], b[i])
		}
	case Max:
		for i := range acc {
			acc[i] = max(acc[i], b[i])
		}
	}
}

// foldInts is foldNumbers with And and Or.
func foldInts[T integer](op Op, dsts, srcs []unsafe.Pointer, n int) {
	if op != And && op != Or {
		foldNumbers[T](op, dsts, srcs, n)
		return
	}
	var zero T
	step := foldBytes / int(unsafe.Sizeof(zero))
	for lo := 0; lo < n; lo += step {
		hi := min(lo+step, n)
		acc := begin[T](dsts, srcs, lo, hi)
		for _, s := range srcs[1:] {
			b := part[T](s, lo, hi)
			for i := range acc {
				if op == And {
					acc[i] &= b[i]
				} else {
					acc[i] |= b[i]
				}
			}
		}
		spread(acc, dsts, lo, hi)
	}
}

// foldHalves folds in float32 and rounds once.
func foldHalves[T interface{ Float32() float32 }](op Op, dsts, srcs []unsafe.Pointer, n int, round func(float32) T) {
	var wide, next [512]float32
	for lo := 0; lo < n; lo += len(wide) {
		hi := min(lo+len(wide), n)
		acc, b := wide[:hi-lo], next[:hi-lo]
		for i, h := range part[T](srcs[0], lo, hi) {
			acc[i] = h.Float32()
		}
		for _, s := range srcs[1:] {
			for i, h := range part[T](s, lo, hi) {
				b[i] = h.Float32()
			}
			arith(op, acc, b)
		}
		if op == Avg {
			for i := range acc {
				acc[i] /= float32(len(srcs))
			}
		}
		out := part[T](dsts[0], lo, hi)
		for i, x := range acc {
			out[i] = round(x)
		}
		spread(out, dsts, lo, hi)
	}
}

// foldFunc is Fold by the user's operation.
func (c *Call) foldFunc(dsts, srcs []unsafe.Pointer, n int) {
	size := c.Func.size
	step := max(1, foldBytes/size)
	for lo := 0; lo < n; lo += step {
		hi := min(lo+step, n)
		acc := begin[byte](dsts, srcs, lo*size, hi*size)
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
