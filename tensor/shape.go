package tensor

import (
	"runtime"
	"slices"
)

// Reshape returns t with other sizes and the same elements in the same order; it
// shares t's memory. One size may be -1: what is left over. It throws a
// *ShapeError if the sizes do not multiply to t.Numel().
func (t *Tensor) Reshape(shape ...int) *Tensor {
	var sizes [MaxDims]int
	if len(shape) > MaxDims {
		throwShape("Reshape", "%d dimensions: at most %d are supported", len(shape), MaxDims)
	}
	n, open := 1, -1
	for i, s := range shape {
		sizes[i] = s
		switch {
		case s == -1 && open < 0:
			open = i
		case s < 0:
			throwShape("Reshape", "%v to %v: one size may be -1, none may be less", t.brief(), slices.Clone(shape))
		default:
			n *= s
		}
	}
	if open >= 0 {
		if n == 0 || t.numel%n != 0 {
			throwShape("Reshape", "%v to %v: the other sizes multiply to %d, which does not divide %d", t.brief(), slices.Clone(shape), n, t.numel)
		}
		sizes[open] = t.numel / n
		n = t.numel
	}
	if n != t.numel {
		throwShape("Reshape", "%v to %v: %d elements are not %d", t.brief(), slices.Clone(shape), t.numel, n)
	}
	return t.view("Reshape", 0, sizes[:len(shape)])
}

// Narrow returns elements start to start+length of dimension dim. It shares x's
// memory if they lie together there (all dimensions before dim have size 1), else
// it is a copy. Its gradient is NarrowGrad.
func Narrow(x *Tensor, dim, start, length int) *Tensor {
	dim = x.axis("Narrow", dim)
	if start < 0 || length < 0 || start+length > x.dims[dim] {
		throwShape("Narrow", "%v: [%d, %d) is not within dimension %d of size %d", x.brief(), start, start+length, dim, x.dims[dim])
	}
	outer, inner := x.around(dim)
	shape := x.dims
	shape[dim] = length
	if outer == 1 {
		return x.view("Narrow", start*inner, shape[:x.ndim])
	}
	y := alloc("Narrow", x.dev, x.dtype, shape[:x.ndim])
	x.dev.CopyLoop(x.dtype.Size(), y.addr, offset(x, "Narrow", start*inner),
		rowsLoop(outer, length*inner, length*inner, x.dims[dim]*inner))
	runtime.KeepAlive(x)
	return y
}

// NarrowGrad returns the gradient of Narrow: zeros of the given shape with dy at
// start of dimension dim.
func NarrowGrad(dy *Tensor, dim, start int, shape ...int) *Tensor {
	dx := Zeros(dy.dev, dy.dtype, shape...)
	var off, zero [MaxDims]int
	off[dx.axis("NarrowGrad", dim)] = start
	CopyBox(dx, off[:dx.ndim], dy, zero[:dy.ndim], dy.Shape())
	return dx
}

// around returns how many elements dimensions before and after dim have.
func (t *Tensor) around(dim int) (outer, inner int) {
	outer, inner = 1, 1
	for _, n := range t.dims[:dim] {
		outer *= n
	}
	for _, n := range t.dims[dim+1 : t.ndim] {
		inner *= n
	}
	return outer, inner
}

// Cat joins tensors along dimension dim; the other sizes are equal. Its gradient
// is Split by the sizes that were joined. It throws a *ShapeError for none.
func Cat(dim int, xs ...*Tensor) *Tensor {
	if len(xs) == 0 {
		throwShape("Cat", "nothing to join")
	}
	first := xs[0]
	dim = first.axis("Cat", dim)
	shape := first.dims
	for i, x := range xs[1:] {
		wantSameType("Cat", first, x)
		other := x.dims
		other[dim] = first.dims[dim]
		if x.ndim != first.ndim || other != first.dims {
			throwShape("Cat", "tensors 0 %v and %d %v differ outside dimension %d", first.brief(), i+1, x.brief(), dim)
		}
		shape[dim] += x.dims[dim]
	}
	y := alloc("Cat", first.dev, first.dtype, shape[:first.ndim])
	outer, inner := y.around(dim)
	at := 0
	for _, x := range xs {
		n := x.dims[dim] * inner
		if n > 0 {
			y.dev.CopyLoop(y.dtype.Size(), offset(y, "Cat", at), x.ptr("Cat"), rowsLoop(outer, n, y.dims[dim]*inner, n))
		}
		at += n
	}
	runtime.KeepAlive(xs)
	return y
}

// Split cuts x along dimension dim into pieces of the given sizes, which add up
// to the dimension. Its gradient is Cat. The pieces share x's memory where
// Narrow does.
func Split(x *Tensor, dim int, sizes ...int) []*Tensor {
	dim = x.axis("Split", dim)
	pieces, start := make([]*Tensor, len(sizes)), 0
	for i, n := range sizes {
		pieces[i] = Narrow(x, dim, start, n)
		start += n
	}
	if start != x.dims[dim] {
		throwShape("Split", "%v: sizes %v add up to %d, dimension %d has %d", x.brief(), slices.Clone(sizes), start, dim, x.dims[dim])
	}
	return pieces
}

// Chunk cuts x along dim as torch.chunk does: pieces of ⌈size/n⌉, the last one
// shorter, and so perhaps fewer than n.
func Chunk(x *Tensor, dim, n int) []*Tensor {
	dim = x.axis("Chunk", dim)
	if n < 1 {
		throwShape("Chunk", "%v into %d pieces: want at least one", x.brief(), n)
	}
	size := max((x.dims[dim]+n-1)/n, 1)
	var pieces []*Tensor
	for start := 0; start < x.dims[dim] || start == 0; start += size {
		pieces = append(pieces, Narrow(x, dim, start, min(size, x.dims[dim]-start)))
	}
	return pieces
}

// Stack joins tensors of one shape along a new dimension dim. Its gradient is
// Unstack.
func Stack(dim int, xs ...*Tensor) *Tensor {
	rows := make([]*Tensor, len(xs))
	for i, x := range xs {
		wantSameShape("Stack", xs[0], x)
		rows[i] = Unsqueeze(x, dim)
	}
	return Cat(dim, rows...)
}

// Unstack takes dimension dim apart: the gradient of Stack.
func Unstack(x *Tensor, dim int) []*Tensor {
	dim = x.axis("Unstack", dim)
	out := make([]*Tensor, x.dims[dim])
	shape := slices.Delete(slices.Clone(x.Shape()), dim, dim+1)
	for i := range out {
		out[i] = Narrow(x, dim, i, 1).Reshape(shape...)
	}
	return out
}

// Unsqueeze inserts a dimension of size 1 before dimension dim; dim may be
// x.NDim() or count from the end, -1 being last. It shares x's memory.
func Unsqueeze(x *Tensor, dim int) *Tensor {
	if dim < -x.NDim()-1 || dim > x.NDim() {
		throwShape("Unsqueeze", "%v: dimension %d is out of range [%d, %d]", x.brief(), dim, -x.NDim()-1, x.NDim())
	}
	if dim < 0 {
		dim += x.NDim() + 1
	}
	return x.Reshape(slices.Insert(slices.Clone(x.Shape()), dim, 1)...)
}

// Squeeze removes dimension dim, whose size is 1. It shares x's memory.
func Squeeze(x *Tensor, dim int) *Tensor {
	dim = x.axis("Squeeze", dim)
	if x.dims[dim] != 1 {
		throwShape("Squeeze", "%v: dimension %d has size %d, not 1", x.brief(), dim, x.dims[dim])
	}
	return x.Reshape(slices.Delete(slices.Clone(x.Shape()), dim, dim+1)...)
}

// Transpose swaps dimensions d0 and d1. Its gradient is Transpose itself.
func Transpose(x *Tensor, d0, d1 int) *Tensor {
	var dims [MaxDims]int
	for i := range x.NDim() {
		dims[i] = i
	}
	d0, d1 = x.axis("Transpose", d0), x.axis("Transpose", d1)
	dims[d0], dims[d1] = d1, d0
	return Permute(x, dims[:x.ndim]...)
}

// Permute reorders the dimensions: dimension i of the result is dims[i] of x. Its
// gradient is Permute by the inverse, InversePermutation(dims).
func Permute(x *Tensor, dims ...int) *Tensor {
	if len(dims) != x.NDim() {
		throwShape("Permute", "%v: %v does not name its %d dimensions", x.brief(), slices.Clone(dims), x.ndim)
	}
	var shape, step, strides [MaxDims]int
	n := 1
	for i := x.NDim() - 1; i >= 0; i-- {
		strides[i] = n
		n *= x.dims[i]
	}
	seen := 0
	for i, d := range dims {
		d = x.axis("Permute", d)
		seen |= 1 << d
		shape[i], step[i] = x.dims[d], strides[d]
	}
	if seen != 1<<x.NDim()-1 {
		throwShape("Permute", "%v: %v names a dimension twice", x.brief(), slices.Clone(dims))
	}
	y := alloc("Permute", x.dev, x.dtype, shape[:x.ndim])
	l := strided(y.Shape(), step[:x.ndim])
	x.dev.CopyLoop(x.dtype.Size(), y.addr, x.ptr("Permute"), l)
	runtime.KeepAlive(x)
	return y
}

// InversePermutation returns the order that undoes dims.
func InversePermutation(dims []int) []int {
	inverse := make([]int, len(dims))
	for i, d := range dims {
		if d < 0 {
			d += len(dims)
		}
		inverse[d] = i
	}
	return inverse
}
