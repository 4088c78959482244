package dtensor

import (
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// The operators that round have the layouts of what never decreases, see Exp. Their gradients are 0. Of integers they
// return x.

// Floor returns the largest whole numbers that are not larger than x.
func (x *Tensor) Floor() *Tensor {
	return x.round("Floor", below)
}

// Ceil returns the smallest whole numbers that are not smaller than x.
func (x *Tensor) Ceil() *Tensor {
	neg := func(x *tensor.Tensor) *tensor.Tensor { return tensor.Unary(kernel.OpNeg, x) }
	return x.round("Ceil", func(near, x *tensor.Tensor) *tensor.Tensor { return neg(below(neg(near), neg(x))) })
}

// Round returns the nearest whole numbers, of two that are as near the even one.
func (x *Tensor) Round() *Tensor {
	return x.round("Round", func(near, x *tensor.Tensor) *tensor.Tensor { return near })
}

// Trunc returns x without its fraction: the whole numbers next to x, towards 0.
func (x *Tensor) Trunc() *Tensor {
	return x.round("Trunc", func(near, x *tensor.Tensor) *tensor.Tensor {
		size := below(tensor.Unary(kernel.OpAbs, near), tensor.Unary(kernel.OpAbs, x))
		return tensor.Binary(kernel.OpMul, size, tensor.Unary(kernel.OpSign, x))
	})
}

// below returns near, less 1 where it is above x.
func below(near, x *tensor.Tensor) *tensor.Tensor {
	return tensor.Binary(kernel.OpSub, near, tensor.Cast(tensor.Compare(kernel.OpGt, near, x), near.DType()))
}

// round returns f of the nearest whole numbers and of x, both in the type in which x is computed with, where x has a fraction, and x
// elsewhere.
func (x *Tensor) round(op string, f func(near, x *tensor.Tensor) *tensor.Tensor) *Tensor {
	dt := x.DType()
	if !dt.Float() {
		return x
	}
	out := single(op, layout.Monotone, x, dt, func(x *tensor.Tensor) *tensor.Tensor {
		whole := float64(1 << 23) // from where on every number is whole
		if dt == tensor.Float64 {
			whole = 1 << 52
		}
		wide := tensor.Cast(x, dt.Wide())
		size := tensor.Unary(kernel.OpAbs, wide)
		near := tensor.AddScalar(tensor.AddScalar(size, whole), -whole) // the first sum has no bits for a fraction
		near = tensor.Binary(kernel.OpMul, near, tensor.Unary(kernel.OpSign, wide))
		return tensor.Where(tensor.CompareScalar(kernel.OpLt, size, whole), tensor.Cast(f(near, wide), dt), x)
	})
	if x.tracked() {
		out.recordTwice(op, func(gy *Tensor) { x.accumulate(gy.Scale(0)) })
	}
	return out
}
