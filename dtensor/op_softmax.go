package dtensor

import (
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// Operators on whole rows along a dimension dim:
//
//	x                 result
//	R                 R
//	S(i), i not dim   S(i)
//	S(dim)            a shard of another dimension, by an all-to-all, or R
//	P, MaskP          R, after a reduction
//
// A softmax over a sharded class dimension that ends in a loss is better left
// to package loss, which needs one small collective.

// Softmax returns exp(x)/Σexp(x), the sum being over dimension dim. Its
// gradient is dx = y·(dy - Σ y·dy).
func (x *Tensor) Softmax(dim int) *Tensor {
	dim = x.dim("Softmax", dim)
	out := x.rowwise("Softmax", dim, func(x *tensor.Tensor) *tensor.Tensor { return tensor.Softmax(x, dim) })
	if x.tracked() {
		y := out.Detach()
		out.record("Softmax", func(gy *Tensor) {
			x.accumulate(gy.rowwise2("SoftmaxGrad", dim, y, func(gy, y *tensor.Tensor) *tensor.Tensor { return tensor.SoftmaxGrad(gy, y, dim) }))
		})
	}
	return out
}

// LogSoftmax returns x - ln Σexp(x), the sum being over dimension dim. Its
// gradient is dx = dy - exp(y)·Σdy.
func (x *Tensor) LogSoftmax(dim int) *Tensor {
	dim = x.dim("LogSoftmax", dim)
	out := x.rowwise("LogSoftmax", dim, func(x *tensor.Tensor) *tensor.Tensor { return tensor.LogSoftmax(x, dim) })
	if x.tracked() {
		y := out.Detach()
		out.record("LogSoftmax", func(gy *Tensor) {
			x.accumulate(gy.rowwise2("LogSoftmaxGrad", dim, y, func(gy, y *tensor.Tensor) *tensor.Tensor { return tensor.LogSoftmaxGrad(gy, y, dim) }))
		})
	}
	return out
}

// Cumsum returns the sums of the elements up to each one along dimension dim.
// Its gradient is the sum of dy from each one on.
func (x *Tensor) Cumsum(dim int) *Tensor {
	dim = x.dim("Cumsum", dim)
	out := x.rowwise("Cumsum", dim, func(x *tensor.Tensor) *tensor.Tensor { return tensor.Cumsum(x, dim) })
	if x.tracked() {
		out.record("Cumsum", func(gy *Tensor) {
			x.accumulate(gy.rowwise("CumsumGrad", dim, func(gy *tensor.Tensor) *tensor.Tensor { return tensor.CumsumGrad(gy, dim) }))
		})
	}
	return out
}

// rowwise computes a function of whole rows along dim. It is not recorded.
func (x *Tensor) rowwise(op string, dim int, f func(x *tensor.Tensor) *tensor.Tensor) *Tensor {
	m := x.spec.mesh
	key := ruleKey{op: op, attr: [3]int{dim}}
	key.in[0] = x.spec
	r := m.rule(key, func() (*layout.Rule, error) { return layout.Rowwise(op, []int{dim}, x.spec.shape) }, x)
	in := x.to(r.in[0], op)
	if m.outside() {
		return m.empty(r.out[0], x.DType())
	}
	return wrap(r.out[0], f(in.local))
}

// rowwise2 is rowwise of two tensors of one shape.
func (x *Tensor) rowwise2(op string, dim int, y *Tensor, f func(x, y *tensor.Tensor) *tensor.Tensor) *Tensor {
	m := x.spec.mesh
	key := keyOf(op, x, y)
	key.attr[0] = dim
	r := m.rule(key, func() (*layout.Rule, error) { return layout.Rowwise(op, []int{dim}, x.spec.shape, y.spec.shape) }, x, y)
	a, b := x.to(r.in[0], op), y.to(r.in[1], op)
	if m.outside() {
		return m.empty(r.out[0], x.DType())
	}
	return wrap(r.out[0], f(a.local, b.local))
}
