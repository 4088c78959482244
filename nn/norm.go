package nn

import (
	"fmt"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/ints"
)

// An RMSNorm scales the last dimension by its root mean square.
type RMSNorm struct {
	Weight *dtensor.Tensor // [C]; nil: none
	Eps    float64
}

// NewRMSNorm makes an RMSNorm of ones with Eps 1e-6.
func NewRMSNorm(init *Init, width int) *RMSNorm {
	return &RMSNorm{Weight: init.Fill(1, []int{width}, "", layout.Replicate()), Eps: 1e-6}
}

// newRMSNorm is NewRMSNorm with an Eps; 0: 1e-6.
func newRMSNorm(init *Init, width int, eps float64) *RMSNorm {
	n := NewRMSNorm(init, width)
	if eps != 0 {
		n.Eps = eps
	}
	return n
}

// Forward normalises x [..., C], in x's type.
func (n *RMSNorm) Forward(x *dtensor.Tensor) *dtensor.Tensor {
	return x.RMSNorm(like(n.Weight, x), n.Eps)
}

// Params lists the weight.
func (n *RMSNorm) Params() Params { return weightAndBias(n.Weight, nil) }

// A LayerNorm normalises the last dimension to mean 0 and variance 1. One without parameters, elementwise_affine=False in PyTorch, is
// &nn.LayerNorm{Eps: 1e-6}.
type LayerNorm struct {
	Weight, Bias *dtensor.Tensor // [C]; nil: none
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
func (n *LayerNorm) Params() Params { return weightAndBias(n.Weight, n.Bias) }

// A GroupNorm normalises each of Groups equal groups of channels, with all their positions, to mean 0 and variance 1, as
// torch.nn.GroupNorm does: Wu and He, 2018. One channel a group is torch.nn.InstanceNorm.
type GroupNorm struct {
	Weight, Bias *dtensor.Tensor // [C]
	Groups       int
	Eps          float64
}

// NewGroupNorm makes a GroupNorm of ones and zeros with Eps 1e-5. groups divides channels.
func NewGroupNorm(init *Init, groups, channels int) *GroupNorm {
	if min(groups, channels) < 1 || channels%groups != 0 {
		fault.Throw(fmt.Errorf("nn: NewGroupNorm: %d channels cannot be divided into %d groups; give a divisor", channels, groups))
	}
	r := layout.Replicate()
	return &GroupNorm{Weight: init.Fill(1, []int{channels}, "", r), Bias: init.Fill(0, []int{channels}, "", r), Groups: groups, Eps: 1e-5}
}

// Forward normalises x, in x's type.
//
//	x [B, C] or [B, C, …]   →   the same
func (n *GroupNorm) Forward(x *dtensor.Tensor) *dtensor.Tensor {
	channels := n.Weight.Dim(0)
	shape := perChannel("GroupNorm", x, channels)
	elements := channels / n.Groups * ints.Product(x.Shape()[2:]) // of a group
	mesh := x.Mesh()
	ones := dtensor.Full(mesh, x.DType(), 1, []int{elements}, mesh.Every(layout.Replicate())...)
	y := x.Reshape(x.Dim(0), n.Groups, elements).LayerNorm(ones, nil, n.Eps).Reshape(x.Shape()...)
	return y.Mul(like(n.Weight, x).Reshape(shape...)).Add(like(n.Bias, x).Reshape(shape...))
}

// Params lists weight and bias.
func (n *GroupNorm) Params() Params { return weightAndBias(n.Weight, n.Bias) }
