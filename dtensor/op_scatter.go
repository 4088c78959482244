package dtensor

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/tensor"
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
	const op = "ScatterAdd"
	dim = x.dim(op, dim)
	sameMesh(op, x, index, src)
	sameType(op, x, src)
	wantIndex(op, index)
	if !slices.Equal(index.spec.shape, src.spec.shape) {
		refuse(op, fmt.Sprintf("the index has shape %v, src %v", index.Shape(), src.Shape()), "make them equal", operand("index", index), operand("src", src))
	}
	return x.Add(pickOp{&elementPick, op, dim}.scatter(x, index, src, func(gy *Tensor) *Tensor { return gy.Gather(dim, index) }))
}

// IndexAdd returns x with slice i of src added to slice index[i] of a
// dimension; index is 1-D. The layouts are those of IndexSelect, whose
// transpose it is; see ScatterAdd.
func (x *Tensor) IndexAdd(dim int, index, src *Tensor) *Tensor {
	const op = "IndexAdd"
	dim = x.dim(op, dim)
	sameMesh(op, x, index, src)
	sameType(op, x, src)
	wantIndex(op, index)
	want := slices.Clone(x.spec.shape)
	if index.NDim() == 1 {
		want[dim] = index.Numel()
	}
	if index.NDim() != 1 || !slices.Equal(want, src.spec.shape) {
		refuse(op, fmt.Sprintf("index %v and src %v do not fit x %v in dim %d", index.Shape(), src.Shape(), x.Shape(), dim), "give one slice of src for each index",
			operand("x", x), operand("index", index), operand("src", src))
	}
	return x.Add(pickOp{&slicePick, op, dim}.scatter(x, index, src, func(gy *Tensor) *Tensor { return gy.IndexSelect(dim, index) }))
}

// scatter puts src into zeros of x's shape; back is its gradient by src.
func (p pickOp) scatter(x, index, src *Tensor, back func(gy *Tensor) *Tensor) *Tensor {
	r := p.rule(x, index)
	b := index.to(r.in[1], p.op)
	var at, foreign *tensor.Tensor
	if !x.spec.mesh.outside() {
		p.checkRange(x, b)
		at, foreign = r.own(p.dim, x.spec.shape[p.dim], b.local)
	}
	out := p.put(src, r, at, foreign)
	if src.tracked() {
		out.record(p.op, func(gy *Tensor) { src.accumulate(back(gy)) })
	}
	return out
}
