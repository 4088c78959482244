package tensor

import (
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Reduce combines the elements of dimensions dims of x, all of them if none is
// named. With keepdim they stay with size 1, else they are removed. Sum and Prod
// of integers and Bool are Int64; Amax and Amin keep the type. Narrow types are combined in
// float32 and rounded once. The elements of one result are combined in an
// order that depends on the sizes alone.
func Reduce(op kernel.ReduceOp, x *Tensor, dims []int, keepdim bool) *Tensor {
	y := reduceWide(op, x, dims, keepdim)
	if x.dtype.Narrow() {
		return Cast(y, x.dtype)
	}
	return y
}

// reduceWide is Reduce that does not round: of a narrow type the result is float32.
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

// reduceRun reduces dimensions [from, to) and keeps them with size 1. Of a narrow
// type the result is float32.
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

// dimMask returns the set of dimensions that dims names, bit d for dimension d;
// all for none.
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

// count returns the number of elements of the dimensions in mask.
func (t *Tensor) count(mask int) int {
	n := 1
	for d, s := range t.Shape() {
		if mask>>d&1 != 0 {
			n *= s
		}
	}
	return n
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

// keepShape returns the shape of t with size 1 for the dimensions in mask.
func (t *Tensor) keepShape(mask int) []int {
	shape := slices.Clone(t.Shape())
	for d := range shape {
		if mask>>d&1 != 0 {
			shape[d] = 1
		}
	}
	return shape
}

// Sum adds up the elements of dims; see Reduce.
func Sum(x *Tensor, dims []int, keepdim bool) *Tensor { return Reduce(kernel.OpSum, x, dims, keepdim) }

// MeanOf returns what elements dims of x add to the mean of n elements, of which they
// are some: their sum over n.
func MeanOf(x *Tensor, dims []int, keepdim bool, n int) *Tensor {
	wantFloat("Mean", x)
	y := reduceWide(kernel.OpSum, x, dims, keepdim)
	y.dev.BinaryScalar(kernel.OpDiv, y.dtype, y.addr, y.addr, kernel.Number{Value: float64(n)}, y.numel)
	return Cast(y, x.dtype)
}
