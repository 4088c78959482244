package tensor

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/internal/fault"
)

// An IndexError says that an index is out of range.
type IndexError struct {
	Op       string
	Position int // of the bad index, counted in row-major order
	Value    int
	Size     int // an index is at least 0 and below Size
}

// Error gives all of it in one line.
func (e *IndexError) Error() string {
	return fmt.Sprintf("tensor: %s: index %d at position %d is out of range [0, %d)", e.Op, e.Value, e.Position, e.Size)
}

// CheckIndex looks for an index outside [0, size). ok is true if there is none,
// else position and value are those of the first. Ranks that see different indices
// use it to agree on an error before they throw one.
func CheckIndex(index *Tensor, size int) (position, value int, ok bool) {
	wantIndex("CheckIndex", "index", index)
	position, value, ok = index.dev.CheckIndex(index.dtype, index.ptr("CheckIndex"), index.numel, size)
	runtime.KeepAlive(index)
	return position, value, ok
}

// wantInRange throws an *IndexError for an index outside [0, size).
func wantInRange(op string, index *Tensor, size int) {
	if pos, value, ok := CheckIndex(index, size); !ok {
		fault.Throw(&IndexError{Op: op, Position: pos, Value: value, Size: size})
	}
}

// IndexSelect returns the slices index[0], index[1], … of dimension dim. index is
// 1-D, int64 or int32. Its gradient is IndexAddTo into zeros. It throws an
// *IndexError for an index out of range.
func IndexSelect(x *Tensor, dim int, index *Tensor) *Tensor {
	dim = x.axis("IndexSelect", dim)
	wantList("IndexSelect", x, index)
	wantInRange("IndexSelect", index, x.dims[dim])
	shape := x.dims
	shape[dim] = index.numel
	y := alloc("IndexSelect", x.dev, x.dtype, shape[:x.ndim])
	outer, inner := x.around(dim)
	x.dev.IndexSelect(x.dtype.Size(), y.addr, x.ptr("IndexSelect"), index.dtype, index.ptr("IndexSelect"), outer, x.dims[dim], index.numel, inner)
	runtime.KeepAlive(x)
	runtime.KeepAlive(index)
	return y
}

// IndexAddTo adds slice i of src to slice index[i] of dst, along dimension dim, those of
// one index in the order of i; bfloat16 in float32, and rounded once.
func IndexAddTo(dst *Tensor, dim int, index, src *Tensor) {
	dim = dst.axis("IndexAddTo", dim)
	wantNumberOrHalf("IndexAddTo", dst)
	wantSameType("IndexAddTo", dst, src)
	wantList("IndexAddTo", dst, index)
	want := dst.dims
	want[dim] = index.numel
	if src.ndim != dst.ndim || src.dims != want {
		throwShape("IndexAddTo", "src %v for %d indices of dimension %d of %v: want shape %v", src.brief(), index.numel, dim, dst.brief(), want[:dst.ndim])
	}
	wantInRange("IndexAddTo", index, dst.dims[dim])
	if dst.dtype == BFloat16 {
		editWide(dst, func(wide *Tensor) { IndexAddTo(wide, dim, index, Widen(src)) })
		return
	}
	outer, inner := dst.around(dim)
	dst.dev.IndexAdd(dst.dtype, dst.ptr("IndexAddTo"), src.ptr("IndexAddTo"), index.dtype, index.ptr("IndexAddTo"), outer, dst.dims[dim], index.numel, inner)
	runtime.KeepAlive(src)
	runtime.KeepAlive(index)
}

// IndexSelectGrad returns the gradient of IndexSelect(x, dim, index) for x of the
// given shape.
func IndexSelectGrad(dy *Tensor, dim int, index *Tensor, shape ...int) *Tensor {
	dx := Zeros(dy.dev, dy.dtype, shape...)
	IndexAddTo(dx, dim, index, dy)
	return dx
}

// wantList throws unless index is a 1-D tensor of integers where x is.
func wantList(op string, x, index *Tensor) {
	wantIndex(op, "index", index)
	wantSameDevice(op, x, index)
	if index.ndim != 1 {
		throwShape(op, "index %v: want one dimension", index.brief())
	}
}

// Gather picks elements along dimension dim:
//
//	y[i][j][k] = x[i][index[i][j][k]][k]   for dim 1
//
// The result has index's shape, which is at most x's in the other dimensions. Its
// gradient is ScatterAddTo into zeros. It throws an *IndexError for an index out
// of range.
func Gather(x *Tensor, dim int, index *Tensor) *Tensor {
	dim = x.axis("Gather", dim)
	l, step := x.pickLoop("Gather", "x", dim, index, index)
	wantInRange("Gather", index, x.dims[dim])
	y := alloc("Gather", x.dev, x.dtype, index.Shape())
	x.dev.Gather(x.dtype.Size(), y.addr, x.ptr("Gather"), index.dtype, index.ptr("Gather"), step, l)
	runtime.KeepAlive(x)
	runtime.KeepAlive(index)
	return y
}

// GatherGrad returns the gradient of Gather(x, dim, index) for x of the given shape.
func GatherGrad(dy *Tensor, dim int, index *Tensor, shape ...int) *Tensor {
	dx := Zeros(dy.dev, dy.dtype, shape...)
	ScatterAddTo(dx, dim, index, dy)
	return dx
}

// ScatterTo writes elements along dimension dim:
//
//	dst[i][index[i][j][k]][k] = src[i][j][k]   for dim 1
//
// index's shape is at most src's, and at most dst's in the other dimensions. Where
// one element is named twice the last one in row-major order stays.
func ScatterTo(dst *Tensor, dim int, index, src *Tensor) {
	scatter("ScatterTo", dst, dim, index, src, false)
}

// ScatterAddTo is ScatterTo that adds to what is there, in row-major order; bfloat16
// in float32, and rounded once.
func ScatterAddTo(dst *Tensor, dim int, index, src *Tensor) {
	wantNumberOrHalf("ScatterAddTo", dst)
	if dst.dtype == BFloat16 {
		wantSameType("ScatterAddTo", dst, src)
		editWide(dst, func(wide *Tensor) { ScatterAddTo(wide, dim, index, Widen(src)) })
		return
	}
	scatter("ScatterAddTo", dst, dim, index, src, true)
}

func scatter(op string, dst *Tensor, dim int, index, src *Tensor, add bool) {
	dim = dst.axis(op, dim)
	wantSameType(op, dst, src)
	l, step := dst.pickLoop(op, "dst", dim, index, src)
	wantInRange(op, index, dst.dims[dim])
	dst.dev.Scatter(dst.dtype, add, dst.ptr(op), src.ptr(op), index.dtype, index.ptr(op), step, l)
	runtime.KeepAlive(src)
	runtime.KeepAlive(index)
}

// pickLoop walks index (contiguous) with the distances of t in A, 0 for dim, and
// those of src in B. step is the distance of t in dim.
func (t *Tensor) pickLoop(op, name string, dim int, index, src *Tensor) (l Loop, step int) {
	wantIndex(op, "index", index)
	wantSameDevice(op, t, index)
	if index.ndim != t.ndim || src.ndim != t.ndim {
		throwShape(op, "%s %v, index %v and src %v: numbers of dimensions differ", name, t.brief(), index.brief(), src.brief())
	}
	var a, b [MaxDims]int
	sa, sb := 1, 1
	for d := t.NDim() - 1; d >= 0; d-- {
		if d != dim && index.dims[d] > t.dims[d] || index.dims[d] > src.dims[d] {
			throwShape(op, "index %v is larger than %s %v or src %v in dimension %d", index.brief(), name, t.brief(), src.brief(), d)
		}
		if d == dim {
			step = sa
		} else {
			a[d] = sa
		}
		b[d] = sb
		sa, sb = sa*t.dims[d], sb*src.dims[d]
	}
	return merge(index.Shape(), a[:t.ndim], b[:t.ndim]), step
}

// OneHot returns rows of classes elements, 1 at the index less lo and 0 elsewhere:
// [...] → [..., classes]. An index outside [lo, lo+classes) gives a row of zeros.
func OneHot(index *Tensor, lo, classes int, dt DType) *Tensor {
	wantIndex("OneHot", "index", index)
	y := Zeros(index.dev, dt, append(slices.Clone(index.Shape()), classes)...)
	index.dev.OneHot(dt, y.addr, index.dtype, index.ptr("OneHot"), index.numel, lo, classes)
	runtime.KeepAlive(index)
	return y
}
