package nn

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// A ConvTranspose is the transpose of a Conv, which makes signals, images or volumes larger, as
// torch.nn.ConvTranspose1d, ConvTranspose2d and ConvTranspose3d compute it: each element of x adds
// the kernel, times itself, to a window of the result. Batches may be sharded, S(0). Where
// a Conv has patches in memory, the windows take K, K² or K³ times that of x with Out channels.
type ConvTranspose struct {
	Weight  *dtensor.Tensor // [In, Out/Groups, K], [In, Out/Groups, K, K] or [In, Out/Groups, K, K, K]
	Bias    *dtensor.Tensor // [Out]; nil: none
	config  ConvConfig
	windows windows
}

// NewConvTranspose1d makes a ConvTranspose of signals [B, In, T], with weights of standard
// deviation 1/√(In/Groups·K) and a bias of zeros.
func NewConvTranspose1d(init *Init, c ConvConfig) *ConvTranspose {
	return newConvTranspose(init, "NewConvTranspose1d", c, 1)
}

// NewConvTranspose2d makes a ConvTranspose of images [B, In, H, W]; see NewConvTranspose1d.
func NewConvTranspose2d(init *Init, c ConvConfig) *ConvTranspose {
	return newConvTranspose(init, "NewConvTranspose2d", c, 2)
}

// NewConvTranspose3d makes a ConvTranspose of volumes [B, In, D, H, W]; see NewConvTranspose1d.
func NewConvTranspose3d(init *Init, c ConvConfig) *ConvTranspose {
	return newConvTranspose(init, "NewConvTranspose3d", c, 3)
}

func newConvTranspose(init *Init, op string, c ConvConfig, dims int) *ConvTranspose {
	c, ws := c.filled(op, dims)
	switch {
	case c.EachOutputPadding == nil:
		c.EachOutputPadding = slices.Repeat([]int{c.OutputPadding}, dims)
	case len(c.EachOutputPadding) != dims || c.OutputPadding != 0:
		fault.Throw(fmt.Errorf("nn: %s: EachOutputPadding is %v beside OutputPadding %d; give %d, one for each dimension of positions, and "+
			"no OutputPadding beside", op, c.EachOutputPadding, c.OutputPadding, dims))
	}
	for d, w := range ws {
		if more := c.EachOutputPadding[d]; more < 0 || more >= max(w.Stride, w.Dilation) {
			fault.Throw(fmt.Errorf("nn: %s: OutputPadding is %d; give one that is not negative, and below Stride %d or Dilation %d",
				op, more, w.Stride, w.Dilation))
		}
	}
	weight, bias := c.params(init, ws, c.In, c.Out/c.Groups)
	return &ConvTranspose{weight, bias, c, ws}
}

// Forward returns the transposed convolution of x, in x's type, whose sizes become
// (size - 1)·Stride - 2·Padding + Dilation·(K-1) + 1 + OutputPadding.
//
//	x [B, In, T]         →   [B, Out, T']            ConvTranspose1d
//	x [B, In, H, W]      →   [B, Out, H', W']        ConvTranspose2d
//	x [B, In, D, H, W]   →   [B, Out, D', H', W']    ConvTranspose3d
func (v *ConvTranspose) Forward(x *dtensor.Tensor) *dtensor.Tensor {
	c, dims := v.config, v.Weight.NDim()-2
	c.signal("ConvTranspose", dims, x)
	sizes := make([]int, dims)
	for d, n := range x.Shape()[2:] {
		w := v.windows[d]
		sizes[d] = (n-1)*w.Stride - 2*w.Padding + w.Dilation*(w.Kernel-1) + 1 + c.EachOutputPadding[d]
		if n < 1 || sizes[d] < 1 {
			fault.Throw(fmt.Errorf("nn: ConvTranspose%dd.Forward: nothing is left of %v; give it more positions, or less Padding", dims, x.Layout()))
		}
	}
	weight := like(v.Weight, x)
	if !v.windows.convolves(x, weight, c.In/c.Groups) {
		return addBias(v.composed(x, weight, sizes), v.Bias)
	}
	ws := make([]kernel.Window, dims)
	for d, w := range v.windows {
		ws[d] = w.sized(sizes[d], x.Dim(2+d))
	}
	in, by := widened(x), widened(weight)
	y := convolveTransposed(in, by, c.Groups, ws, func() *dtensor.Tensor { return v.composed(in, by, sizes) })
	return addBias(y.Cast(x.DType()), v.Bias)
}

// composed is the transposed convolution of x and a weight by operators, with positions of these sizes.
func (v *ConvTranspose) composed(x, weight *dtensor.Tensor, sizes []int) *dtensor.Tensor {
	c, batch, windows, window := v.config, x.Dim(0), x.Shape()[2:], v.windows.elements()
	x = x.Reshape(batch, c.Groups, c.In/c.Groups, ints.Product(windows))
	weight = weight.Reshape(c.Groups, c.In/c.Groups, c.Out/c.Groups*window)
	y := dtensor.Einsum("gik,bgin->bgkn", weight, x).Reshape(append([]int{batch, c.Out, window}, windows...)...)
	return v.windows.unpatch(y, sizes)
}

// Params lists weight and bias.
func (v *ConvTranspose) Params() Params { return weightAndBias(v.Weight, v.Bias) }
