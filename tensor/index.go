package tensor

import (
	"fmt"
	"runtime"

	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor/kernel"
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

// UnravelIndex returns the index in each dimension of a shape of the element at a position in row-major order, as torch.unravel_index
// does.
func UnravelIndex(position int, shape []int) []int {
	index := make([]int, len(shape))
	for d := len(shape) - 1; d >= 0; d-- {
		index[d] = position % shape[d]
		position /= shape[d]
	}
	return index
}

// CheckIndex looks for an index outside [0, size) and returns the position and value
// of the first; ok is true if there is none. Ranks that see different indices
// use it to agree on an error before they throw one.
func CheckIndex(index *Tensor, size int) (position, value int, ok bool) {
	const op = "CheckIndex"
	wantIndex(op, "index", index)
	position, value, ok = index.dev.CheckIndex(index.indices(op), size)
	runtime.KeepAlive(index)
	return position, value, ok
}

// indices returns t, which holds Int32 or Int64, as kernels take it.
func (t *Tensor) indices(op string) kernel.Index {
	return kernel.Index{DType: t.dtype, At: t.ptr(op), N: t.numel}
}

// wantInRange throws an *IndexError for an index outside [0, size).
func wantInRange(op string, index *Tensor, size int) {
	if pos, value, ok := CheckIndex(index, size); !ok {
		fault.Throw(&IndexError{Op: op, Position: pos, Value: value, Size: size})
	}
}

// IndexSelect returns the slices index[0], index[1], … of dimension dim. index is 1-D, int64 or int32.
// Its gradient is IndexAddTo into zeros.
func IndexSelect(x *Tensor, dim int, index *Tensor) *Tensor {
	const op = "IndexSelect"
	dim = x.axis(op, dim)
	wantList(op, x, index)
	wantInRange(op, index, x.dims[dim])
	shape := x.dims
	shape[dim] = index.numel
	y := alloc(op, x.dev, x.dtype, shape[:x.ndim])
	x.dev.IndexSelect(x.dtype.Size(), y.addr, x.ptr(op), index.indices(op), x.along(dim))
	keepAlive(x, index)
	return y
}

// IndexAddTo adds slice i of src to slice index[i] of dst, along dimension dim, in the order of i.
func IndexAddTo(dst *Tensor, dim int, index, src *Tensor) {
	const op = "IndexAddTo"
	dim = dst.axis(op, dim)
	wantNumber(op, dst)
	wantSameType(op, dst, src)
	wantList(op, dst, index)
	want := dst.dims
	want[dim] = index.numel
	if src.ndim != dst.ndim || src.dims != want {
		throwShape(op, "src %v for %d indices of dimension %d of %v: want shape %v", src.brief(), index.numel, dim, dst.brief(),
			want[:dst.ndim])
	}
	wantInRange(op, index, dst.dims[dim])
	dst.dev.IndexAdd(dst.dtype, dst.change(op), src.ptr(op), index.indices(op), dst.along(dim))
	keepAlive(src, index)
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
// The result has index's shape, which is at most x's in the other dimensions. Its gradient is
// ScatterAddTo into zeros.
func Gather(x *Tensor, dim int, index *Tensor) *Tensor {
	const op = "Gather"
	dim = x.axis(op, dim)
	p := x.pick(op, "x", dim, index, index)
	wantInRange(op, index, x.dims[dim])
	y := alloc(op, x.dev, x.dtype, index.Shape())
	x.dev.Gather(x.dtype.Size(), y.addr, x.ptr(op), p)
	keepAlive(x, index)
	return y
}

// ScatterTo writes elements along dimension dim:
//
//	dst[i][index[i][j][k]][k] = src[i][j][k]   for dim 1
//
// index's shape is at most src's, and at most dst's in the other dimensions. If index
// names an element of dst twice, the last in row-major order is written.
func ScatterTo(dst *Tensor, dim int, index, src *Tensor) {
	scatter("ScatterTo", dst, dim, index, src, false)
}

// ScatterAddTo adds what ScatterTo would write, in row-major order.
func ScatterAddTo(dst *Tensor, dim int, index, src *Tensor) {
	const op = "ScatterAddTo"
	wantNumber(op, dst)
	scatter(op, dst, dim, index, src, true)
}

func scatter(op string, dst *Tensor, dim int, index, src *Tensor, add bool) {
	dim = dst.axis(op, dim)
	wantSameType(op, dst, src)
	p := dst.pick(op, "dst", dim, index, src)
	wantInRange(op, index, dst.dims[dim])
	dst.dev.Scatter(dst.dtype, add, dst.change(op), src.ptr(op), p)
	keepAlive(src, index)
}

// pick returns the elements of t that index names along dim. Its loop walks index, which is
// contiguous, with the strides of t in A, 0 for dim, and those of src in B.
func (t *Tensor) pick(op, name string, dim int, index, src *Tensor) kernel.Pick {
	wantIndex(op, "index", index)
	wantSameDevice(op, t, index)
	if index.ndim != t.ndim || src.ndim != t.ndim {
		throwShape(op, "%s %v, index %v and src %v: numbers of dimensions differ", name, t.brief(), index.brief(), src.brief())
	}
	var a, b [kernel.MaxDims]int
	step, sa, sb := 0, 1, 1
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
	return kernel.Pick{Index: index.indices(op), Loop: merge(index.Shape(), a[:t.ndim], b[:t.ndim]), Step: step, Numel: t.numel}
}
