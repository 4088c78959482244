package dtensor

import (
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Sort returns the elements along a dimension in ascending order, or with descending the
// largest first, and their positions, int64. Equal elements keep their order, and NaN is
// larger than any number, as torch.sort with stable=True. The gradient of the values goes
// to where they were.
//
//	x                 values, index
//	R                 R
//	S(i), i not dim   S(i)
//	S(dim), P         one of these rows, the cheapest
//
// A rank sorts on its host; what lies on a GPU is copied there and back.
func (x *Tensor) Sort(dim int, descending bool) (values, index *Tensor) {
	defer x.spec.mesh.Span("Sort").End()
	if x.NDim() == 0 {
		values, index = x.lift().Sort(dim, descending)
		return values.Reshape(), index.Reshape()
	}
	dim = x.dim("Sort", dim)
	n := x.spec.shape[dim]
	return x.ranked("Sort", dim, n, func(local *tensor.Tensor) (values, index *tensor.Tensor) {
		return tensor.Sort(local, dim, descending)
	})
}

// Cummax returns the largest of the elements up to each one along a dimension, NaN from the first NaN on, and where they are,
// int64; of equal ones the last. The layouts and the gradient are those of Sort.
func (x *Tensor) Cummax(dim int) (values, index *Tensor) {
	return x.running("Cummax", dim, kernel.OpGt)
}

// Cummin returns the smallest of the elements up to each one along a dimension; see Cummax.
func (x *Tensor) Cummin(dim int) (values, index *Tensor) {
	return x.running("Cummin", dim, kernel.OpLt)
}

// running returns for each element the one that beats all others up to it, and where that is.
func (x *Tensor) running(op string, dim int, beats kernel.CompareOp) (values, index *Tensor) {
	defer x.spec.mesh.Span(op).End()
	if x.NDim() == 0 {
		values, index = x.lift().running(op, dim, beats)
		return values.Reshape(), index.Reshape()
	}
	dim = x.dim(op, dim)
	return x.ranked(op, dim, x.spec.shape[dim], func(local *tensor.Tensor) (values, index *tensor.Tensor) {
		return runningBest(local, dim, beats)
	})
}

// runningBest is running of a local tensor. After each pass an element is the best of so many up to it, or of all.
func runningBest(x *tensor.Tensor, dim int, beats kernel.CompareOp) (values, index *tensor.Tensor) {
	dt, n := x.DType(), x.Dim(dim)
	if tensor.HostComputes(x.Device()) && (dt == tensor.Float32 || dt == tensor.Float64 || dt == tensor.Int64) {
		return tensor.Running(x, dim, beats == kernel.OpLt)
	}
	values, index = x, tensor.Expand(along(tensor.Arange(x.Device(), tensor.Int64, 0, n), dim, x.NDim()), x.Shape()...)
	for have := 1; have < n; have *= 2 {
		before := func(t *tensor.Tensor) *tensor.Tensor { return tensor.Narrow(t, dim, 0, n-have) }
		after := func(t *tensor.Tensor) *tensor.Tensor { return tensor.Narrow(t, dim, have, n-have) }
		stays := tensor.MaskedFill(tensor.Compare(beats, before(values), after(values)), before(isNaN(values)), 1)
		stays = tensor.MaskedFill(stays, after(isNaN(values)), 0)
		join := func(t *tensor.Tensor) *tensor.Tensor {
			return tensor.Cat(dim, tensor.Narrow(t, dim, 0, have), tensor.Where(stays, before(t), after(t)))
		}
		values, index = join(values), join(index)
	}
	return values, index
}

func isNaN(x *tensor.Tensor) *tensor.Tensor { return tensor.Compare(kernel.OpNe, x, x) }

// ranked returns k elements along a dimension and their positions, which f chooses where
// the dimension is whole. The gradient of the elements goes to where they were.
func (x *Tensor) ranked(op string, dim, k int, f func(local *tensor.Tensor) (values, index *tensor.Tensor)) (values, index *Tensor) {
	m := x.spec.mesh
	in, r := x.summary(op, dim, k, k)
	if m.outside() {
		values, index = m.empty(r.out[0], x.DType()), m.empty(r.out[1], tensor.Int64)
	} else {
		v, i := f(in.local)
		values, index = wrap(r.out[0], v), wrap(r.out[1], i)
	}
	if x.tracked() {
		at := index.local
		values.recordTwice(op, func(gy *Tensor) {
			gx := gy.to(r.out[0].gradient(), op+"Grad").local
			if !m.outside() {
				gy := gx
				gx = tensor.Zeros(gy.Device(), gy.DType(), r.in[0].local...)
				tensor.ScatterAddTo(gx, dim, at, gy)
			}
			out := wrap(r.in[0], gx)
			if gy.tracked() {
				out.recordTwice(op+"Grad", func(g *Tensor) { gy.accumulate(g.Gather(dim, index)) })
			}
			in.accumulate(out)
		})
	}
	return values, index
}

// Argmin returns the position, int64, of the smallest element along a dimension, the first
// one of several, and that of a NaN if there is one; see Argmax.
func (x *Tensor) Argmin(dim int, keepdim bool) *Tensor {
	if x.NDim() > 0 { // Argmax says the same, by its own name
		dim = x.dimWithElements("Argmin", dim)
	}
	x = x.Detach()
	switch dt := x.DType(); {
	case dt == tensor.Bool:
		x = x.LogicalNot()
	case dt.Float():
		x = x.Neg()
	default: // -x-1 has the order turned round, also of the smallest integer
		x = x.Neg().AddScalar(-1)
	}
	return x.Argmax(dim, keepdim)
}

// Roll returns x with its elements moved by shift places along a dimension, those that
// leave it at one end coming back at the other: element i of the result is element
// i-shift of x. A negative shift moves towards the front. The gradient is dy rolled
// back. The layouts are those of Narrow and Cat.
func (x *Tensor) Roll(shift, dim int) *Tensor {
	defer x.spec.mesh.Span("Roll").End()
	if x.NDim() == 0 {
		return x.lift().Roll(shift, dim).Reshape()
	}
	dim = x.dim("Roll", dim)
	n := x.spec.shape[dim]
	if n == 0 {
		return x
	}
	shift = (shift%n + n) % n
	if shift == 0 {
		return x
	}
	in := x.Detach()
	var out *Tensor
	if x.stays(dim) {
		out = in.rowwise("Roll", dim, func(x *tensor.Tensor, dim int) *tensor.Tensor { return tensor.Roll(x, shift, dim) })
	} else {
		out = Cat(dim, in.Narrow(dim, n-shift, shift), in.Narrow(dim, 0, n-shift))
	}
	if x.tracked() {
		out.recordTwice("Roll", func(gy *Tensor) { x.accumulate(gy.Roll(-shift, dim)) })
	}
	return out
}
