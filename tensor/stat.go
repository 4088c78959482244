package tensor

import (
	"runtime"
	"slices"
)

// Argmax returns the position along dim of the largest element, Int64: the first
// of equals; NaN is larger than any number. It throws a *ShapeError if dim has no
// elements.
func Argmax(x *Tensor, dim int, keepdim bool) *Tensor {
	_, index := TopK(x, 1, dim)
	return index.dropDims(1<<x.axis("Argmax", dim), keepdim)
}

// TopK returns the k largest elements along dim, largest first, and their
// positions, Int64. Of equals the first one comes first; NaN is larger than any
// number. It throws a *ShapeError if dim has fewer than k.
func TopK(x *Tensor, k, dim int) (values, index *Tensor) {
	const op = "TopK"
	wantComparable(op, x)
	dim = x.axis(op, dim)
	if k < 0 || k > x.dims[dim] {
		throwShape(op, "x %v: dimension %d does not have %d elements", x.brief(), dim, k)
	}
	shape := slices.Clone(x.Shape())
	shape[dim] = k
	if dim != x.NDim()-1 {
		outer, inner := x.around(dim)
		values, index = TopK(Transpose(x.Reshape(outer, x.dims[dim], inner), 1, 2), k, -1)
		if k != 1 {
			values, index = Transpose(values, 1, 2), Transpose(index, 1, 2)
		}
		return values.Reshape(shape...), index.Reshape(shape...)
	}
	values = alloc(op, x.dev, x.dtype, shape)
	index = alloc(op, x.dev, Int64, shape)
	x.dev.TopK(x.dtype, values.addr, index.addr, x.ptr(op), x.rowsOf(x.dims[dim]), k)
	runtime.KeepAlive(x)
	return values, index
}

// Cumsum returns the cumulative sums along dim; element i is the sum of elements 0 to i.
// float32 and narrow types are added up in float64. Integers and Bool become Int64.
func Cumsum(x *Tensor, dim int) *Tensor { return cumsum("Cumsum", x, dim, false) }

// CumsumGrad returns the gradient of Cumsum(x, dim): element i is the sum of elements i to
// the last of dy.
func CumsumGrad(dy *Tensor, dim int) *Tensor { return cumsum("CumsumGrad", dy, dim, true) }

func cumsum(op string, x *Tensor, dim int, reverse bool) *Tensor {
	if !x.dtype.Float() {
		wantComparable(op, x)
		x = Cast(x, Int64)
	}
	dim = x.axis(op, dim)
	y := allocLike(op, x)
	x.dev.Cumsum(x.dtype, reverse, y.addr, x.ptr(op), x.along(dim))
	runtime.KeepAlive(x)
	return y
}
