package dtensor

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor/layout"
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
	added := scatter(op, x, index, src, pickOp{op: op, dim: dim,
		declare: func() (*layout.Rule, error) { return layout.Gather(op, x.spec.shape, dim, index.spec.shape) },
		back: func(gy, at *tensor.Tensor, shape []int) *tensor.Tensor {
			return tensor.GatherGrad(gy, dim, at, shape...)
		},
		mask: func(y, foreign *tensor.Tensor) *tensor.Tensor { return tensor.MaskedFill(y, foreign, 0) },
	}, func(gy *Tensor) *Tensor { return gy.Gather(dim, index) })
	return x.Add(added)
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
	added := scatter(op, x, index, src, pickOp{op: op, dim: dim,
		declare: func() (*layout.Rule, error) { return layout.Lookup(op, x.spec.shape, dim, index.spec.shape) },
		back: func(gy, at *tensor.Tensor, shape []int) *tensor.Tensor {
			return tensor.IndexSelectGrad(gy, dim, at, shape...)
		},
		mask: func(y, foreign *tensor.Tensor) *tensor.Tensor { return maskSlices(y, dim, foreign) },
	}, func(gy *Tensor) *Tensor { return gy.IndexSelect(dim, index) })
	return x.Add(added)
}

// scatter puts src into zeros of x's shape; back is its gradient by src.
func scatter(op string, x, index, src *Tensor, p pickOp, back func(gy *Tensor) *Tensor) *Tensor {
	m := x.spec.mesh
	key := keyOf(op, x, index)
	key.attr[0] = p.dim
	r, ok := m.rules[key]
	if !ok {
		r = m.rule(key, p.declare, x, index)
		r.out[0] = r.out[0].unmasked()
	}
	b := index.to(r.in[1], op)
	var at, foreign *tensor.Tensor
	if !m.outside() {
		p.checkRange(m, x, b)
		at, foreign = r.own(p.dim, x.spec.shape[p.dim], b.local)
	}
	out := p.grad(m, src, r, at, foreign)
	if src.tracked() {
		out.record(op, func(gy *Tensor) { src.accumulate(back(gy)) })
	}
	return out
}

// maskSlices puts zeros into the slices of a dimension where foreign is true.
func maskSlices(y *tensor.Tensor, dim int, foreign *tensor.Tensor) *tensor.Tensor {
	shape := make([]int, y.NDim())
	for d := range shape {
		shape[d] = 1
	}
	shape[dim] = foreign.Numel()
	return tensor.MaskedFill(y, foreign.Reshape(shape...), 0)
}
