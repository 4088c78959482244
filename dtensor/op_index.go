package dtensor

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// IndexSelect returns the slices index[0], index[1], … of a dimension. index
// is 1-D and of integers.
//
//	x                index   result
//	R                R       R
//	S(i), i not dim  R       S(i)
//	R                S(0)    S(dim)
//	S(dim)           R       P(sum): each rank gives the slices that it has; of Bool P(max)
//	other                    the cheapest of these rows
//
// An x that is Partial stays so if the result is no larger. Its gradient adds slice i of dy to slice index[i]. An index out of range
// throws a *tensor.IndexError, on every rank if the index is replicated.
func (x *Tensor) IndexSelect(dim int, index *Tensor) *Tensor {
	defer x.spec.mesh.Span("IndexSelect").End()
	const op = "IndexSelect"
	index = index.lift()
	if x.NDim() == 0 {
		return x.lift().IndexSelect(dim, index).Reshape()
	}
	dim = x.dim(op, dim)
	sameMesh(op, x, index)
	wantIndex(op, index)
	if index.NDim() != 1 {
		refuse(op, fmt.Sprintf("the index has %d dimensions", index.NDim()), "give a list", operand("x", x), operand("index", index))
	}
	return pickOp{&slicePick, op, dim}.take(x, index)
}

// Gather picks elements along a dimension:
//
//	y[i][j][k] = x[i][index[i][j][k]][k]   for dim 1
//
// The result has the shape of the index, which is at most x's in the other
// dimensions.
//
//	x                index            result
//	R                R                R
//	S(i), i not dim  S(i)             S(i)     if both have the same size there
//	R                S(dim)           S(dim)
//	S(dim)           R                P(sum): each rank gives the elements that it has; of Bool P(max)
//	S(dim)           MaskP            MaskP of x's floating-point numbers: an index that Redistribute
//	                                  brought to MaskPartial(x.Shape(), dim)
//	other                             the cheapest of these rows
//
// An x that is Partial stays so if the result is no larger. Its gradient adds each element of dy where it was picked. An index out of
// range throws a *tensor.IndexError, on every rank if the index is replicated.
func (x *Tensor) Gather(dim int, index *Tensor) *Tensor {
	defer x.spec.mesh.Span("Gather").End()
	const op = "Gather"
	if x.NDim() == 0 {
		return x.lift().Gather(dim, index.lift()).Reshape(index.Shape()...)
	}
	dim = x.dim(op, dim)
	sameMesh(op, x, index)
	wantIndex(op, index)
	if out, ok := x.gatherMasked(op, dim, index); ok {
		return out
	}
	return pickOp{&elementPick, op, dim}.take(x, index)
}

// gatherMasked is Gather by an index that is masked as x is sharded along dim: the result
// has its mask. ok is false if the layouts or the type are others.
func (x *Tensor) gatherMasked(op string, dim int, index *Tensor) (out *Tensor, ok bool) {
	if !index.spec.masked || !x.DType().Float() || x.NDim() != index.NDim() {
		return nil, false
	}
	places := slices.Clone(index.spec.placements)
	for axis, its := range x.spec.placements {
		table, along, masks := places[axis].Offset()
		i, sharded := its.Dim()
		switch {
		case masks && its == layout.Shard(dim) && table[along] == x.spec.shape[dim]:
			places[axis] = layout.MaskPartial([]int{x.spec.shape[dim]}, 0) // each element has a mask
		case masks || its.IsPartial():
			return nil, false
		case sharded && (i == dim || its != places[axis] || x.spec.shape[i] != index.spec.shape[i]):
			return nil, false
		case !sharded && !places[axis].IsReplicate() && !places[axis].Shards(dim):
			return nil, false
		}
	}
	p := pickOp{&elementPick, op, dim}
	if _, err := p.declare(op, x.spec.shape, dim, index.spec.shape); err != nil {
		return nil, false // which take says
	}
	m := x.spec.mesh
	r := &rule{in: []*spec{x.spec, index.spec}, out: []*spec{index.spec.with(op, places)}}
	out = &Tensor{spec: r.out[0], mask: index.mask.Hold()}
	var foreign *tensor.Tensor
	switch {
	case m.outside():
		out.local = m.empty(r.out[0], x.DType()).local
	case x.spec.local[dim] == 0:
		out.local = tensor.Zeros(m.eng.dev, x.DType(), r.out[0].local...)
	default:
		out.local = tensor.Gather(x.local, dim, index.local)
	}
	if !m.outside() {
		foreign = index.mask.Masked().Reshape(index.spec.local...)
	}
	if x.tracked() {
		out.record(op, func(gy *Tensor) { x.accumulate(p.put(gy, r, index.local, foreign)) })
	}
	return out, true
}

// A pick takes parts of a dimension by an index; its transpose adds them there.
type pick struct {
	declare func(op string, x []int, dim int, index []int) (*layout.Rule, error)
	forward func(x *tensor.Tensor, dim int, at *tensor.Tensor) *tensor.Tensor
	addTo   func(dst *tensor.Tensor, dim int, at, src *tensor.Tensor)              // the transpose of forward
	mask    func(y *tensor.Tensor, dim int, foreign *tensor.Tensor) *tensor.Tensor // zeros where another rank has the part
}

var (
	slicePick   = pick{layout.Lookup, tensor.IndexSelect, tensor.IndexAddTo, maskSlices}
	elementPick = pick{layout.Gather, tensor.Gather, tensor.ScatterAddTo, maskElements}
)

func maskSlices(y *tensor.Tensor, dim int, foreign *tensor.Tensor) *tensor.Tensor {
	return tensor.MaskedFill(y, along(foreign, dim, y.NDim()), 0)
}

// along returns a list as a tensor of dims dimensions, in which it lies along dim and the others are 1.
func along(list *tensor.Tensor, dim, dims int) *tensor.Tensor {
	shape := slices.Repeat([]int{1}, dims)
	shape[dim] = list.Numel()
	return list.Reshape(shape...)
}

func maskElements(y *tensor.Tensor, _ int, foreign *tensor.Tensor) *tensor.Tensor {
	return tensor.MaskedFill(y, foreign, 0)
}

// A pickOp is the operator of a pick along one dimension.
type pickOp struct {
	*pick
	op  string
	dim int
}

// rule returns the cached rule of p on x and an index.
func (p pickOp) rule(x, index *Tensor) *rule {
	m := x.spec.mesh
	parts := addends(x.DType()) // what a rank lacks is zero
	key := keyOf(p.op, x, index)
	key.attr[0], key.attr[1] = p.dim, int(parts)
	if r := m.rules.get(key.slot(), &key); r != nil {
		return r
	}
	r := m.rule(key, func() (*layout.Rule, error) { return p.declare(p.op, x.spec.shape, p.dim, index.spec.shape) }, x, index)
	r.out[0] = r.out[0].unmasked(parts)
	return r
}

// take returns the parts of x that the index names.
func (p pickOp) take(x, index *Tensor) *Tensor {
	m := x.spec.mesh
	index = p.wholeIndex(index)
	r := p.rule(x, index)
	a, b := x.to(r.in[0], p.op), index.to(r.in[1], p.op)
	out := &Tensor{spec: r.out[0]}
	var at, foreign *tensor.Tensor
	if m.outside() {
		out.local = m.empty(r.out[0], x.DType()).local
	} else {
		if anyShard(b.spec) || r.in[0].local[p.dim] != x.spec.shape[p.dim] { // else forward throws the same error on every rank
			b.checkRange(p.op, x.spec.shape[p.dim])
		}
		at, foreign = r.own(p.dim, x.spec.shape[p.dim], b.local)
		out.local = p.local(a.local, at, foreign, r.out[0])
	}
	if x.tracked() {
		out.recordTwice(p.op, func(gy *Tensor) {
			gx := p.put(gy, r, at, foreign)
			if gy.tracked() {
				gx.recordTwice(p.op+"Grad", func(g *Tensor) { gy.accumulate(p.take(g, index)) })
			}
			a.accumulate(gx)
		})
	}
	return out
}

// own returns the index counted from this rank's first element of dimension
// dim, of the given global size, and which elements another rank has, where
// this rank's index is 0; nil if the rank has all.
func (r *rule) own(dim, size int, index *tensor.Tensor) (at, foreign *tensor.Tensor) {
	first, n := r.in[0].offset[dim], r.in[0].local[dim]
	if n == size {
		return index, nil
	}
	return ownIDs(index, first, n)
}

// local takes this rank's parts, and zeros for those of other ranks.
func (p pickOp) local(x, at, foreign *tensor.Tensor, s *spec) *tensor.Tensor {
	switch {
	case foreign == nil:
		return p.forward(x, p.dim, at)
	case x.Dim(p.dim) == 0:
		return tensor.Zeros(x.Device(), x.DType(), s.local...)
	}
	return p.mask(p.forward(x, p.dim, at), p.dim, foreign)
}

// put adds dy to zeros where it was taken. On an axis that shards the index alone
// each rank has its own part of dy, and what it puts is Partial.
func (p pickOp) put(gy *Tensor, r *rule, at, foreign *tensor.Tensor) *Tensor {
	in, out := slices.Clone(r.in[0].placements), slices.Clone(r.out[0].placements)
	for axis := range in {
		its := gy.spec.placements[axis]
		switch {
		case in[axis].IsShard() && !out[axis].IsShard(): // x is sharded along dim
			out[axis] = layout.Replicate()
		case !in[axis].IsShard() && out[axis].IsShard():
			in[axis] = layout.Partial(layout.Sum)
		case !in[axis].IsShard():
			in[axis], out[axis] = layout.Replicate(), layout.Replicate()
			if its == layout.Partial(layout.Sum) {
				in[axis], out[axis] = its, its
			}
		}
	}
	gy = gy.to(gy.spec.with(p.op, out), p.op+"Grad")
	s := r.in[0].with(p.op, in)
	if s.mesh.outside() {
		return s.mesh.empty(s, gy.DType())
	}
	dx := tensor.Zeros(s.mesh.eng.dev, gy.DType(), s.local...)
	if s.local[p.dim] > 0 {
		dy := gy.local
		if foreign != nil {
			dy = p.mask(dy, p.dim, foreign)
		}
		p.addTo(dx, p.dim, at, dy)
	}
	return wrap(s, dx)
}

// checkRange throws for an index that is not from 0 to size-1. Where ranks hold different parts
// of the index an error of one of them alone ends the communicator.
func (index *Tensor) checkRange(op string, size int) {
	local := index.local
	if dt := local.DType(); dt != tensor.Int32 && dt != tensor.Int64 {
		local = tensor.Cast(local, tensor.Int64)
	}
	at, value, ok := tensor.CheckIndex(local, size)
	if ok {
		return
	}
	err := &tensor.IndexError{Op: op, Position: at, Value: value, Size: size}
	if anyShard(index.spec) {
		index.spec.mesh.abort(err)
	}
	fault.Throw(err)
}

// Argmax returns the position, int64, of the largest element along a
// dimension, the first one of several; NaN is larger than all. It throws a
// *LayoutError for a dimension of size 0.
//
//	x                 result
//	R                 R
//	S(i), i not dim   S(i)
//	S(dim), P         one of these rows, the cheapest
func (x *Tensor) Argmax(dim int, keepdim bool) *Tensor {
	defer x.spec.mesh.Span("Argmax").End()
	if x.NDim() == 0 {
		return x.lift().Argmax(dim, false)
	}
	dim = x.dimWithElements("Argmax", dim)
	length := -1
	if keepdim {
		length = 1
	}
	a, r := x.summary("Argmax", dim, length)
	if x.spec.mesh.outside() {
		return x.spec.mesh.empty(r.out[0], tensor.Int64)
	}
	return wrap(r.out[0], tensor.Argmax(a.local, dim, keepdim))
}

// dimWithElements is dim, and throws for a dimension of size 0.
func (x *Tensor) dimWithElements(op string, dim int) int {
	dim = x.dim(op, dim)
	if x.spec.shape[dim] == 0 {
		refuse(op, fmt.Sprintf("dim %d has no elements", dim), "", operand("x", x))
	}
	return dim
}

// TopK returns the k largest elements along a dimension, largest first, and
// their positions, int64; of equal ones the first ones. The layouts are those
// of Argmax. The gradient of the values goes to where they were.
func (x *Tensor) TopK(k, dim int) (values, index *Tensor) {
	defer x.spec.mesh.Span("TopK").End()
	if x.NDim() == 0 {
		values, index = x.lift().TopK(k, dim)
		if k == 1 { // as it came
			return values.Reshape(), index.Reshape()
		}
		return values, index
	}
	dim = x.dim("TopK", dim)
	if k < 0 || k > x.spec.shape[dim] {
		refuse("TopK", fmt.Sprintf("k is %d, out of range [0, %d] for dim %d", k, x.spec.shape[dim], dim), "", operand("x", x))
	}
	return x.ranked("TopK", dim, k, func(local *tensor.Tensor) (values, index *tensor.Tensor) { return tensor.TopK(local, k, dim) })
}

// summary brings x to a layout in which dimension dim is whole.
func (x *Tensor) summary(op string, dim int, lengths ...int) (*Tensor, *rule) {
	key := keyOf(op, x)
	key.attr[0], key.attr[1] = dim, lengths[0]
	r := x.spec.mesh.rule(key, func() (*layout.Rule, error) { return layout.Summary(op, x.spec.shape, dim, lengths...) }, x)
	return x.to(r.in[0], op), r
}
