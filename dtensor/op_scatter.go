package dtensor

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// ScatterAdd returns x with the elements of src added along a dimension where
// index says:
//
//	y = x;  y[i][index[i][j][k]][k] += src[i][j][k]   for dim 1
//
// src has the shape of the index, which is at most x's in the other
// dimensions. The layouts are those of Gather, whose transpose it is: what an
// axis that shards the index along dim adds is Partial and is reduced to meet
// x. The gradient of x is dy, that of src is dy gathered. An index out of range
// throws a *tensor.IndexError.
func (x *Tensor) ScatterAdd(dim int, index, src *Tensor) *Tensor {
	defer x.spec.mesh.Span("ScatterAdd").End()
	const op = "ScatterAdd"
	if x.NDim() == 0 {
		return x.lift().ScatterAdd(dim, index.lift(), src.lift()).Reshape()
	}
	dim = x.dim(op, dim)
	wantScatter(op, x, index, src)
	return x.Add(pickOp{&elementPick, op, dim}.scatter(x, index, src, func(gy *Tensor) *Tensor { return gy.Gather(dim, index) }))
}

// wantScatter throws unless src and index fit each other and src is of x's type.
func wantScatter(op string, x, index, src *Tensor) {
	sameMesh(op, x, index, src)
	sameType(op, x, src)
	wantIndex(op, index)
	if !slices.Equal(index.spec.shape, src.spec.shape) {
		refuse(op, fmt.Sprintf("the index has shape %v, src %v", index.Shape(), src.Shape()),
			"make them equal", operand("index", index), operand("src", src))
	}
}

// IndexAdd returns x with slice i of src added to slice index[i] of a
// dimension; index is 1-D. The layouts are those of IndexSelect, whose
// transpose it is; see ScatterAdd.
func (x *Tensor) IndexAdd(dim int, index, src *Tensor) *Tensor {
	defer x.spec.mesh.Span("IndexAdd").End()
	const op = "IndexAdd"
	if x.NDim() == 0 {
		return x.lift().IndexAdd(dim, index.lift(), src.lift()).Reshape()
	}
	dim = x.dim(op, dim)
	sameMesh(op, x, index, src)
	sameType(op, x, src)
	wantIndex(op, index)
	if x.DType() == tensor.Bool { // a rank with no rows would not see it
		refuse(op, "bool has no sum", "Cast to an integer type", operand("x", x))
	}
	want := slices.Clone(x.spec.shape)
	if index.NDim() == 1 {
		want[dim] = index.Numel()
	}
	if index.NDim() != 1 || !slices.Equal(want, src.spec.shape) {
		refuse(op, fmt.Sprintf("index %v and src %v do not fit x %v in dim %d", index.Shape(), src.Shape(), x.Shape(), dim),
			"give one slice of src for each index",
			operand("x", x), operand("index", index), operand("src", src))
	}
	return x.Add(pickOp{&slicePick, op, dim}.scatter(x, index, src, func(gy *Tensor) *Tensor { return gy.IndexSelect(dim, index) }))
}

// Scatter returns x with the elements of src put along a dimension where index says:
//
//	y = x;  y[i][index[i][j][k]][k] = src[i][j][k]   for dim 1
//
// src has the shape of the index, which is at most x's in the other dimensions. Where
// several elements are put in one place the last one in the order of j stays, in every
// layout.
//
//	x                index, src   result
//	R                R            R
//	S(i), i not dim  S(i)         S(i)     if x and index have the same size there
//	S(dim)           R            S(dim)
//	other                         the cheapest of these rows
//
// The gradient of x is dy, zero where something was put; that of src is dy where it was
// put, zero for an element that was overwritten. An index out of range throws a
// *tensor.IndexError, on every rank if the index is replicated.
func (x *Tensor) Scatter(dim int, index, src *Tensor) *Tensor {
	defer x.spec.mesh.Span("Scatter").End()
	const op = "Scatter"
	if x.NDim() == 0 {
		return x.lift().Scatter(dim, index.lift(), src.lift()).Reshape()
	}
	dim = x.dim(op, dim)
	wantScatter(op, x, index, src)
	x, index, src = wholeWithSameBits(x, index, src)
	out, done := x.scattered(op, dim, index, src, tensor.ScatterTo)
	if Tracked(x, src) {
		out.recordComposed(op, func(gy *Tensor) { done.back(gy.to(out.spec, op+"Grad"), dim) },
			func() *Tensor { return x.scatteredAgain(dim, index, src) })
	}
	return out
}

// scatteredAgain is Scatter by operators that can be differentiated twice: what is put is added to zeros.
func (x *Tensor) scatteredAgain(dim int, index, src *Tensor) *Tensor {
	line := slices.Repeat([]int{1}, index.NDim())
	line[dim] = index.Dim(dim)
	m := x.spec.mesh
	order := Arange(m, tensor.Int64, 0, line[dim], m.Every(layout.Replicate())...).Reshape(line...).Expand(index.Shape()...)
	none := filled(x.Reduced().spec, tensor.Int64, -1)
	last := none.Scatter(dim, index, order) // which element of src was put in each place, -1: none
	stays := last.CompareScalar(kernel.OpEq, -1)
	lost := last.Gather(dim, index).Compare(kernel.OpNe, order)
	return stays.Where(x, filled(none.spec, x.DType(), 0).ScatterAdd(dim, index, src.MaskedFill(lost, 0)))
}

// wholeWithSameBits returns the operands of a Scatter, replicated with SameBits: the gradient of src has parts on all ranks
// that have parts of the dimension.
func wholeWithSameBits(x, index, src *Tensor) (*Tensor, *Tensor, *Tensor) {
	m := x.spec.mesh
	if !m.eng.same {
		return x, index, src
	}
	whole := m.Every(layout.Replicate())
	return x.Redistribute(whole...), index.Redistribute(whole...), src.Redistribute(whole...)
}

// A scattering is what scattered has done: its rule, and the operands in the rule's layouts.
type scattering struct {
	*rule
	at     *tensor.Tensor // where this rank's elements of src are put
	x, src *Tensor
}

// scattered returns x with src put along dim by a function of a local tensor, the index and src, by the rule of Scatter.
func (x *Tensor) scattered(op string, dim int, index, src *Tensor, put func(dst *tensor.Tensor, dim int, at, src *tensor.Tensor),
) (out *Tensor, done scattering) {
	m := x.spec.mesh
	key := keyOf(op, x, index, src)
	key.attr[0] = dim
	r := m.rule(key, func() (*layout.Rule, error) { return layout.Scatter(op, x.spec.shape, dim, index.spec.shape) }, x, index, src)
	a, b, c := x.to(r.in[0], op), index.to(r.in[1], op), src.to(r.in[2], op)
	out = &Tensor{spec: r.out[0]}
	var at *tensor.Tensor
	if m.outside() {
		out.local = m.empty(r.out[0], x.DType()).local
	} else {
		b.checkRange(op, x.spec.shape[dim])
		var foreign *tensor.Tensor
		if at, foreign = r.own(dim, x.spec.shape[dim], b.local); foreign == nil {
			out.local = tensor.Clone(a.local)
			put(out.local, dim, at, c.local)
		} else {
			at = tensor.MaskedFill(at, foreign, float64(r.in[0].local[dim]))
			out.local = putInto(a.local, dim, at, c.local, put)
		}
	}
	return out, scattering{r, at, a, c}
}

// putInto returns a copy of x with src put along dim. An index of x's size there is nowhere.
func putInto(x *tensor.Tensor, dim int, at, src *tensor.Tensor, put func(dst *tensor.Tensor, dim int, at, src *tensor.Tensor),
) *tensor.Tensor {
	rest := slices.Clone(x.Shape())
	n := rest[dim]
	rest[dim] = 1
	y := tensor.Cat(dim, x, tensor.Zeros(x.Device(), x.DType(), rest...))
	put(y, dim, at, src)
	return tensor.Narrow(y, dim, 0, n)
}

// back hands x and src their parts of the gradient dy of Scatter.
func (r scattering) back(gy *Tensor, dim int) {
	const op = "ScatterGrad"
	m, at, x, src := gy.spec.mesh, r.at, r.x, r.src
	places := slices.Clone(r.in[2].placements)
	for axis, p := range r.in[0].placements {
		if p.Shards(dim) { // each rank has the elements that were put on it
			places[axis] = layout.Partial(layout.Sum)
		}
	}
	mine := r.in[2].with(op, places)
	if m.outside() {
		x.accumulate(gy)
		src.accumulate(m.empty(mine, gy.DType()))
		return
	}
	// last holds, for each element of x and one more, which element of src was put there.
	dev, shape := at.Device(), slices.Clone(r.in[0].local)
	n, count := shape[dim], at.Dim(dim)
	order := tensor.Expand(along(tensor.Arange(dev, tensor.Int64, 0, count), dim, len(shape)), at.Shape()...)
	shape[dim]++
	last := tensor.Full(dev, tensor.Int64, -1, shape...)
	tensor.ScatterTo(last, dim, at, order)
	if x.node != nil {
		taken := tensor.CompareScalar(kernel.OpNe, tensor.Narrow(last, dim, 0, n), -1)
		x.accumulate(wrap(gy.spec, tensor.MaskedFill(gy.local, taken, 0)))
	}
	if src.node != nil {
		shape[dim] = 1
		dy := tensor.Cat(dim, gy.local, tensor.Zeros(dev, gy.DType(), shape...)) // nowhere
		lost := tensor.Compare(kernel.OpNe, tensor.Gather(last, dim, at), order)
		src.accumulate(wrap(mine, tensor.MaskedFill(tensor.Gather(dy, dim, at), lost, 0)))
	}
}

// scatter puts src into zeros of x's shape; back is its gradient by src.
func (p pickOp) scatter(x, index, src *Tensor, back func(gy *Tensor) *Tensor) *Tensor {
	index = p.wholeIndex(index)
	r := p.rule(x, index)
	b := index.to(r.in[1], p.op)
	var at, foreign *tensor.Tensor
	if !x.spec.mesh.outside() {
		b.checkRange(p.op, x.spec.shape[p.dim])
		at, foreign = r.own(p.dim, x.spec.shape[p.dim], b.local)
	}
	out := p.put(src, r, at, foreign)
	out.made(p.op, src)
	if src.tracked() {
		out.recordTwice(p.op, func(gy *Tensor) { src.accumulate(back(gy)) })
	}
	return out
}
