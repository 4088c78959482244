package tensor

import (
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/tensor/cpu"
)

// Argmax returns the position along dim of the largest element, Int64: the first of equals; NaN is the
// largest. An empty dim throws a *ShapeError.
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

// Cumsum returns the cumulative sums along dim; element i is the sum of elements 0 to i. float32 and
// narrow types are added up in float64.
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

// Cumprod returns the cumulative products along dim; element i is the product of elements 0 to i, by halves. x is Float32, Float64 or
// Int64. It is computed on the host.
func Cumprod(x *Tensor, dim int) *Tensor {
	const op = "Cumprod"
	dim = x.axis(op, dim)
	if dim != x.NDim()-1 {
		return x.turned(dim, func(x *Tensor) *Tensor { return Cumprod(x, 2) })
	}
	y := allocLike(op, x)
	switch n := x.dims[dim]; x.dtype {
	case Float32:
		Edit(y, func(to []float32) { cpu.Cumprod(to, Read[float32](x), n) })
	case Float64:
		Edit(y, func(to []float64) { cpu.Cumprod(to, Read[float64](x), n) })
	case Int64:
		Edit(y, func(to []int64) { cpu.Cumprod(to, Read[int64](x), n) })
	default:
		throwType(op, "%v: want float32, float64 or int64; Cast first", x.brief())
	}
	runtime.KeepAlive(x)
	return y
}

// CumprodGrad returns the gradient of Cumprod(x, dim), of Float32 or Float64.
func CumprodGrad(dy, x *Tensor, dim int) *Tensor {
	const op = "CumprodGrad"
	wantSameShape(op, dy, x)
	wantSameType(op, dy, x)
	dim = x.axis(op, dim)
	if dim != x.NDim()-1 {
		outer, inner := x.around(dim)
		dy = Transpose(dy.Reshape(outer, x.dims[dim], inner), 1, 2)
		return x.turned(dim, func(x *Tensor) *Tensor { return CumprodGrad(dy, x, 2) })
	}
	dx := allocLike(op, x)
	switch n := x.dims[dim]; x.dtype {
	case Float32:
		Edit(dx, func(to []float32) { cpu.CumprodGrad(to, Read[float32](dy), Read[float32](x), n) })
	case Float64:
		Edit(dx, func(to []float64) { cpu.CumprodGrad(to, Read[float64](dy), Read[float64](x), n) })
	default:
		throwType(op, "%v: want float32 or float64; Cast first", x.brief())
	}
	keepAlive(dy, x)
	return dx
}

// LogCumsumExp returns ln Σ eˣ of the elements up to each one along dim. x is Float32 or Float64. It is computed on the host.
func LogCumsumExp(x *Tensor, dim int) *Tensor {
	const op = "LogCumsumExp"
	dim = x.axis(op, dim)
	if dim != x.NDim()-1 {
		return x.turned(dim, func(x *Tensor) *Tensor { return LogCumsumExp(x, 2) })
	}
	y := allocLike(op, x)
	switch n := x.dims[dim]; x.dtype {
	case Float32:
		Edit(y, func(to []float32) { cpu.LogCumsumExp(to, Read[float32](x), n) })
	case Float64:
		Edit(y, func(to []float64) { cpu.LogCumsumExp(to, Read[float64](x), n) })
	default:
		throwType(op, "%v: want float32 or float64; Cast first", x.brief())
	}
	runtime.KeepAlive(x)
	return y
}

// LogCumsumExpGrad returns the gradient of y = LogCumsumExp(x, dim).
func LogCumsumExpGrad(dy, x, y *Tensor, dim int) *Tensor {
	const op = "LogCumsumExpGrad"
	wantSameShape(op, dy, x)
	wantSameType(op, dy, x)
	dim = x.axis(op, dim)
	if dim != x.NDim()-1 {
		outer, inner := x.around(dim)
		dy = Transpose(dy.Reshape(outer, x.dims[dim], inner), 1, 2)
		y = Transpose(y.Reshape(outer, x.dims[dim], inner), 1, 2)
		return x.turned(dim, func(x *Tensor) *Tensor { return LogCumsumExpGrad(dy, x, y, 2) })
	}
	dx := allocLike(op, x)
	switch n := x.dims[dim]; x.dtype {
	case Float32:
		Edit(dx, func(to []float32) { cpu.LogCumsumExpGrad(to, Read[float32](dy), Read[float32](x), Read[float32](y), n) })
	case Float64:
		Edit(dx, func(to []float64) { cpu.LogCumsumExpGrad(to, Read[float64](dy), Read[float64](x), Read[float64](y), n) })
	default:
		throwType(op, "%v: want float32 or float64; Cast first", x.brief())
	}
	keepAlive(dy, x, y)
	return dx
}

// Running returns the largest of the elements up to each one along dimension dim, or with least the smallest, NaN from the first NaN
// on, and where they are, Int64; of equal ones the last. x is Float32, Float64 or Int64. It is computed on the host.
func Running(x *Tensor, dim int, least bool) (values, index *Tensor) {
	const op = "Running"
	if dim = x.axis(op, dim); dim != x.NDim()-1 {
		outer, inner := x.around(dim)
		values, index = Running(Transpose(x.Reshape(outer, x.dims[dim], inner), 1, 2), 2, least)
		return Transpose(values, 1, 2).Reshape(x.Shape()...), Transpose(index, 1, 2).Reshape(x.Shape()...)
	}
	values, index = allocLike(op, x), alloc(op, x.dev, Int64, x.Shape())
	switch x.dtype {
	case Float32:
		running[float32](values, index, x, least)
	case Float64:
		running[float64](values, index, x, least)
	case Int64:
		running[int64](values, index, x, least)
	default:
		throwType(op, "%v: want float32, float64 or int64; Cast first", x.brief())
	}
	runtime.KeepAlive(x)
	return values, index
}

// running is Running of rows of elements of type T.
func running[T float32 | float64 | int64](values, index, x *Tensor, least bool) {
	Edit(values, func(v []T) {
		Edit(index, func(at []int64) { cpu.Running(v, at, Read[T](x), x.dims[x.NDim()-1], least) })
	})
}

// turned returns f of x, [outer, inner, n] for dimension dim of n elements, turned back.
func (x *Tensor) turned(dim int, f func(x *Tensor) *Tensor) *Tensor {
	outer, inner := x.around(dim)
	y := f(Transpose(x.Reshape(outer, x.dims[dim], inner), 1, 2))
	return Transpose(y, 1, 2).Reshape(x.Shape()...)
}
