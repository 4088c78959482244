package tensor

import (
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Reshape returns t with other sizes and the same elements in the same order; it shares t's memory.
// One size may be -1: it is computed from the others.
func (t *Tensor) Reshape(shape ...int) *Tensor {
	const op = "Reshape"
	var sizes [kernel.MaxDims]int
	if len(shape) > kernel.MaxDims {
		throwShape(op, "%d dimensions: at most %d are supported", len(shape), kernel.MaxDims)
	}
	n, open := 1, -1
	for i, s := range shape {
		sizes[i] = s
		switch {
		case s == -1 && open < 0:
			open = i
		case s < 0:
			throwShape(op, "%v to %v: one size may be -1, none may be less", t.brief(), slices.Clone(shape))
		default:
			n *= s
		}
	}
	if open >= 0 {
		if n == 0 || t.numel%n != 0 {
			throwShape(op, "%v to %v: the other sizes multiply to %d, which does not divide %d", t.brief(), slices.Clone(shape), n, t.numel)
		}
		sizes[open] = t.numel / n
		n = t.numel
	}
	if n != t.numel {
		throwShape(op, "%v to %v: %d elements are not %d", t.brief(), slices.Clone(shape), t.numel, n)
	}
	return t.view(op, 0, sizes[:len(shape)])
}

// Narrow returns elements start to start+length of dimension dim: a view of x's memory
// if they are contiguous (all dimensions before dim have size 1), else a copy. Its
// gradient is a copy into zeros.
func Narrow(x *Tensor, dim, start, length int) *Tensor {
	const op = "Narrow"
	dim = x.axis(op, dim)
	if start < 0 || length < 0 || start+length > x.dims[dim] {
		throwShape(op, "%v: [%d, %d) is not within dimension %d of size %d", x.brief(), start, start+length, dim, x.dims[dim])
	}
	outer, inner := x.around(dim)
	shape := x.dims
	shape[dim] = length
	if outer == 1 {
		return x.view(op, start*inner, shape[:x.ndim])
	}
	y := alloc(op, x.dev, x.dtype, shape[:x.ndim])
	x.dev.CopyLoop(x.dtype.Size(), y.addr, offset(x, op, start*inner),
		rowsLoop(outer, length*inner, length*inner, x.dims[dim]*inner))
	runtime.KeepAlive(x)
	return y
}

// along returns dimension dim as kernels take it.
func (t *Tensor) along(dim int) kernel.Axis {
	outer, inner := t.around(dim)
	return kernel.Axis{Outer: outer, N: t.dims[dim], Inner: inner}
}

// around returns the products of the sizes before and after dim.
func (t *Tensor) around(dim int) (outer, inner int) {
	return ints.Product(t.dims[:dim]), ints.Product(t.dims[dim+1 : t.ndim])
}

// Cat joins tensors along dimension dim; the other sizes are equal. Its gradient
// is Narrow for each. It throws a *ShapeError if there are none.
func Cat(dim int, xs ...*Tensor) *Tensor {
	const op = "Cat"
	if len(xs) == 0 {
		throwShape(op, "nothing to join")
	}
	first := xs[0]
	dim = first.axis(op, dim)
	shape := first.dims
	for i, x := range xs[1:] {
		wantSameType(op, first, x)
		other := x.dims
		other[dim] = first.dims[dim]
		if x.ndim != first.ndim || other != first.dims {
			throwShape(op, "tensors 0 %v and %d %v differ outside dimension %d", first.brief(), i+1, x.brief(), dim)
		}
		shape[dim] += x.dims[dim]
	}
	y := alloc(op, first.dev, first.dtype, shape[:first.ndim])
	outer, inner := y.around(dim)
	at := 0
	for _, x := range xs {
		n := x.dims[dim] * inner
		if n > 0 {
			y.dev.CopyLoop(y.dtype.Size(), offset(y, op, at), x.ptr(op), rowsLoop(outer, n, y.dims[dim]*inner, n))
		}
		at += n
	}
	runtime.KeepAlive(xs)
	return y
}

// Transpose swaps dimensions d0 and d1. Its gradient is Transpose itself.
func Transpose(x *Tensor, d0, d1 int) *Tensor {
	const op = "Transpose"
	var dims [kernel.MaxDims]int
	for i := range x.NDim() {
		dims[i] = i
	}
	d0, d1 = x.axis(op, d0), x.axis(op, d1)
	dims[d0], dims[d1] = d1, d0
	return Permute(x, dims[:x.ndim]...)
}

// Permute reorders the dimensions: dimension i of the result is dims[i] of x. Its
// gradient is Permute by the inverse order.
func Permute(x *Tensor, dims ...int) *Tensor {
	const op = "Permute"
	if len(dims) != x.NDim() {
		throwShape(op, "%v: %v does not name its %d dimensions", x.brief(), slices.Clone(dims), x.ndim)
	}
	var shape, step, strides [kernel.MaxDims]int
	n := 1
	for i := x.NDim() - 1; i >= 0; i-- {
		strides[i] = n
		n *= x.dims[i]
	}
	seen := 0
	for i, d := range dims {
		d = x.axis(op, d)
		seen |= 1 << d
		shape[i], step[i] = x.dims[d], strides[d]
	}
	if seen != 1<<x.NDim()-1 {
		throwShape(op, "%v: %v names a dimension twice", x.brief(), slices.Clone(dims))
	}
	y := alloc(op, x.dev, x.dtype, shape[:x.ndim])
	l := strided(y.Shape(), step[:x.ndim])
	x.dev.CopyLoop(x.dtype.Size(), y.addr, x.ptr(op), l)
	runtime.KeepAlive(x)
	return y
}

// Triangle returns x, [..., R, C], with 0 above a diagonal of its matrices: elements [r, c] with c - r > diagonal; with upper with 0 below
// it. Its gradient is Triangle itself.
func Triangle(x *Tensor, diagonal int, upper bool) *Tensor {
	const op = "Triangle"
	y := allocLike(op, x)
	rows, cols, size := x.dims[x.NDim()-2], x.dims[x.NDim()-1], x.dtype.Size()
	for i := 0; i*cols < x.numel; i++ {
		kept := [2]int{0, min(max(i%rows+diagonal+1, 0), cols)}
		if upper {
			kept = [2]int{min(max(i%rows+diagonal, 0), cols), cols}
		}
		from, to := i*cols+kept[0], i*cols+kept[1]
		x.dev.Fill(x.dtype, offset(y, op, i*cols), kept[0], 0)
		x.dev.CopyBytes(offset(y, op, from), offset(x, op, from), (to-from)*size)
		x.dev.Fill(x.dtype, offset(y, op, to), cols-kept[1], 0)
	}
	runtime.KeepAlive(x)
	return y
}

// Flip returns x with the elements along dims in the opposite order. Its gradient is Flip itself.
func Flip(x *Tensor, dims ...int) *Tensor {
	const op = "Flip"
	var step [kernel.MaxDims]int
	n, last := 1, 0
	for i := x.NDim() - 1; i >= 0; i-- {
		step[i] = n
		n *= x.dims[i]
	}
	y := allocLike(op, x)
	if n == 0 {
		return y
	}
	for _, d := range dims {
		d = x.axis(op, d)
		last += step[d] * (x.dims[d] - 1)
		step[d] = -step[d]
	}
	x.dev.CopyLoop(x.dtype.Size(), y.addr, offset(x, op, last), strided(x.Shape(), step[:x.ndim]))
	runtime.KeepAlive(x)
	return y
}

// Roll returns x with element i along dim at i+shift, those that leave it at the end coming back at the front; shift is from 0 to the
// size of dim. Its gradient is Roll back.
func Roll(x *Tensor, shift, dim int) *Tensor {
	const op = "Roll"
	dim = x.axis(op, dim)
	n := x.dims[dim]
	if shift < 0 || shift > n {
		throwShape(op, "%v: the shift %d is not from 0 to %d", x.brief(), shift, n)
	}
	y := allocLike(op, x)
	outer, inner := x.around(dim)
	part := func(from, to, length int) {
		if outer*length*inner > 0 {
			x.dev.CopyLoop(x.dtype.Size(), offset(y, op, to*inner), offset(x, op, from*inner), rowsLoop(outer, length*inner, n*inner, n*inner))
		}
	}
	part(0, shift, n-shift)
	part(n-shift, 0, shift)
	runtime.KeepAlive(x)
	return y
}
