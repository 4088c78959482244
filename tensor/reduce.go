package tensor

import (
	"math/bits"
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Reduce combines the elements of x along dims, or along all dimensions if dims is empty. With keepdim
// they stay with size 1, else they are removed. Amax and Amin keep the type. The order in which
// elements are combined depends on the sizes alone.
func Reduce(op kernel.ReduceOp, x *Tensor, dims []int, keepdim bool) *Tensor {
	y := reduceWide(op, x, dims, keepdim)
	if x.dtype.Narrow() {
		return Cast(y, x.dtype)
	}
	return y
}

// reduceWide is Reduce without rounding: the result of a narrow type is float32.
func reduceWide(op kernel.ReduceOp, x *Tensor, dims []int, keepdim bool) *Tensor {
	name := op.String()
	if !x.dtype.Float() {
		wantComparable(name, x)
		if op.Row().Grows {
			x = Cast(x, Int64)
		}
	}
	mask := x.dimMask(name, dims)
	y := x
	for d := 0; d < x.NDim(); {
		if mask>>d&1 == 0 {
			d++
			continue
		}
		end := d + 1
		for end < x.NDim() && mask>>end&1 != 0 {
			end++
		}
		y = reduceRun(op, y, d, end)
		d = end
	}
	if y == x {
		y = Clone(Widen(x))
	}
	return y.dropDims(mask, keepdim)
}

// reduceRun reduces dimensions [from, to) and keeps them with size 1. The result of a
// narrow type is float32.
func reduceRun(op kernel.ReduceOp, x *Tensor, from, to int) *Tensor {
	a := kernel.Axis{Outer: 1, N: 1, Inner: 1}
	shape := x.dims
	for i, n := range x.Shape() {
		switch {
		case i < from:
			a.Outer *= n
		case i < to:
			a.N *= n
			shape[i] = 1
		default:
			a.Inner *= n
		}
	}
	y := alloc(op.String(), x.dev, x.dtype.Wide(), shape[:x.ndim])
	x.dev.Reduce(op, x.dtype, y.addr, x.ptr(op.String()), a)
	runtime.KeepAlive(x)
	return y
}

// dimMask returns the set of dimensions that dims names, bit d for dimension d, or all
// if dims is empty.
func (t *Tensor) dimMask(op string, dims []int) (mask int) {
	if len(dims) == 0 {
		return 1<<t.NDim() - 1
	}
	for _, d := range dims {
		d = t.axis(op, d)
		if mask>>d&1 != 0 {
			throwShape(op, "%v: %v names dimension %d twice", t.brief(), slices.Clone(dims), d)
		}
		mask |= 1 << d
	}
	return mask
}

// dropDims removes the dimensions in mask, which have size 1, unless keep.
func (t *Tensor) dropDims(mask int, keep bool) *Tensor {
	if keep || mask == 0 {
		return t
	}
	var shape [kernel.MaxDims]int
	n := 0
	for d, s := range t.Shape() {
		if mask>>d&1 == 0 {
			shape[n] = s
			n++
		}
	}
	return t.Reshape(shape[:n]...)
}

// Sum adds up the elements of dims; see Reduce.
func Sum(x *Tensor, dims []int, keepdim bool) *Tensor { return Reduce(kernel.OpSum, x, dims, keepdim) }

// SquareSums returns Σ x² over dims, all if dims is empty, which stay with size 1. x is floating-point.
func SquareSums(x *Tensor, dims []int) *Tensor {
	const op = "SquareSums"
	wantFloat(op, x)
	mask := x.dimMask(op, dims)
	first := bits.TrailingZeros(uint(mask))
	if x.dtype == Float64 || mask == 0 || mask != (1<<x.NDim()-1)>>first<<first {
		square := Unary(kernel.OpSquare, x)
		defer square.Free()
		return Sum(square, dims, true)
	}
	shape, cols := slices.Clone(x.Shape()), 1
	for d := first; d < x.NDim(); d++ {
		shape[d], cols = 1, cols*shape[d]
	}
	y := alloc(op, x.dev, x.dtype.Wide(), shape)
	x.dev.RowStat(kernel.OpPowSum, x.dtype, y.addr, x.ptr(op), kernel.Matrix{Rows: y.numel, Cols: cols}, 2)
	runtime.KeepAlive(x)
	return Cast(y, x.dtype)
}

// MeanPart returns the sum of x along dims divided by n: the part of x in a mean of n
// elements, of which x may hold only some.
func MeanPart(x *Tensor, dims []int, keepdim bool, n int) *Tensor {
	wantFloat("Mean", x)
	y := reduceWide(kernel.OpSum, x, dims, keepdim)
	y.dev.BinaryScalar(kernel.OpDiv, y.dtype, y.addr, y.addr, kernel.Number{Value: float64(n)}, y.numel)
	return Cast(y, x.dtype)
}
