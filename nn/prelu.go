package nn

import (
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// A PReLU multiplies what is not above 0 by a slope that is learned, as torch.nn.PReLU does: He et al., 2015.
type PReLU struct {
	Weight *dtensor.Tensor // [1], or one slope for each channel, [C]
}

// NewPReLU makes a PReLU whose slopes begin with 0.25. Their number is one, for all elements, or that of the channels.
func NewPReLU(init *Init, slopes int) *PReLU {
	return &PReLU{Weight: init.Fill(0.25, []int{slopes}, "", layout.Replicate())}
}

// Forward returns x where x is above 0, else x times the slope, in x's type.
//
//	x [B, C] or [B, C, …], or any of one slope   →   the same
func (p *PReLU) Forward(x *dtensor.Tensor) *dtensor.Tensor {
	slope := like(p.Weight, x)
	if n := slope.Dim(0); n != 1 {
		slope = slope.Reshape(perChannel("PReLU", x, n)...)
	}
	return x.CompareScalar(kernel.OpGt, 0).Where(x, x.Mul(slope))
}

// Params lists the weight.
func (p *PReLU) Params() Params { return weightAndBias(p.Weight, nil) }
