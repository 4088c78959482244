package nn

import (
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
)

// An RMSNorm scales the last dimension by its root mean square.
type RMSNorm struct {
	Weight *dtensor.Tensor // [C]
	Eps    float64
}

// NewRMSNorm makes an RMSNorm of ones with Eps 1e-6.
func NewRMSNorm(init *Init, width int) *RMSNorm {
	return &RMSNorm{Weight: init.Fill(1, []int{width}, "", layout.Replicate()), Eps: 1e-6}
}

// Forward normalises x [..., C], in x's type.
func (n *RMSNorm) Forward(x *dtensor.Tensor) *dtensor.Tensor {
	return x.RMSNorm(like(n.Weight, x), n.Eps)
}

// Params lists the weight.
func (n *RMSNorm) Params() Params {
	return func(yield func(string, *dtensor.Tensor) bool) { yield("weight", n.Weight) }
}

// A LayerNorm normalises the last dimension to mean 0 and variance 1.
type LayerNorm struct {
	Weight, Bias *dtensor.Tensor // [C]
	Eps          float64
}

// NewLayerNorm makes a LayerNorm of ones and zeros with Eps 1e-5.
func NewLayerNorm(init *Init, width int) *LayerNorm {
	r := layout.Replicate()
	return &LayerNorm{Weight: init.Fill(1, []int{width}, "", r), Bias: init.Fill(0, []int{width}, "", r), Eps: 1e-5}
}

// Forward normalises x [..., C], in x's type.
func (n *LayerNorm) Forward(x *dtensor.Tensor) *dtensor.Tensor {
	return x.LayerNorm(like(n.Weight, x), like(n.Bias, x), n.Eps)
}

// Params lists weight and bias.
func (n *LayerNorm) Params() Params {
	return func(yield func(string, *dtensor.Tensor) bool) {
		_ = yield("weight", n.Weight) && yield("bias", n.Bias)
	}
}
