package dtensor

import "github.com/gorun-spmd/gorun/tensor/kernel"

// The operators that round have the layouts of what never decreases, see Exp. Their gradients are 0. Of integers they
// return x.

// Floor returns the largest whole numbers that are not larger than x.
func (x *Tensor) Floor() *Tensor { return x.round(kernel.OpFloor) }

// Ceil returns the smallest whole numbers that are not smaller than x.
func (x *Tensor) Ceil() *Tensor { return x.round(kernel.OpCeil) }

// Round returns the nearest whole numbers, of two that are as near the even one.
func (x *Tensor) Round() *Tensor { return x.round(kernel.OpRound) }

// Trunc returns x without its fraction: the whole numbers next to x, towards 0.
func (x *Tensor) Trunc() *Tensor { return x.round(kernel.OpTrunc) }

func (x *Tensor) round(op kernel.UnaryOp) *Tensor {
	if !x.DType().Float() {
		return x
	}
	return unary(op, x)
}
