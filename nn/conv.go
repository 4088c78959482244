package nn

import (
	"cmp"
	"fmt"
	"math"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// A ConvConfig describes a Conv1d or Conv2d. In, Out and Kernel are needed.
type ConvConfig struct {
	In, Out  int // channels
	Kernel   int // K: its size along each dimension
	Stride   int // 0: 1
	Padding  int // zeros on each side of each dimension
	Dilation int // how far apart the kernel's elements are; 0: 1
	Groups   int // channels are divided into so many groups that do not mix; 0: 1
	Bias     bool
}

// A Conv is the cross-correlation of signals or images with kernels, as torch.nn.Conv1d
// and Conv2d compute it. Batches may be sharded, S(0). It is a matrix product with the
// patches of x that the kernel covers, which take K or K·K times the memory of x.
type Conv struct {
	Weight *dtensor.Tensor // [Out, In/Groups, K] or [Out, In/Groups, K, K]
	Bias   *dtensor.Tensor // [Out]; nil: none
	config ConvConfig
}

// NewConv1d makes a Conv of signals [B, In, T], with weights of standard deviation
// 1/√(In/Groups·K) and a bias of zeros.
func NewConv1d(init *Init, c ConvConfig) *Conv { return newConv(init, "NewConv1d", c, 1) }

// NewConv2d makes a Conv of images [B, In, H, W]; see NewConv1d.
func NewConv2d(init *Init, c ConvConfig) *Conv { return newConv(init, "NewConv2d", c, 2) }

func newConv(init *Init, op string, c ConvConfig, dims int) *Conv {
	c.Stride, c.Dilation, c.Groups = cmp.Or(c.Stride, 1), cmp.Or(c.Dilation, 1), cmp.Or(c.Groups, 1)
	if min(c.In, c.Out, c.Kernel, c.Stride, c.Dilation, c.Groups) < 1 || c.Padding < 0 || c.In%c.Groups != 0 || c.Out%c.Groups != 0 {
		fault.Throw(fmt.Errorf("nn: %s: %+v: all but Padding and Bias have to be positive, and channels multiples of Groups", op, c))
	}
	shape := []int{c.Out, c.In / c.Groups}
	for range dims {
		shape = append(shape, c.Kernel)
	}
	fan := c.In / c.Groups
	for range dims {
		fan *= c.Kernel
	}
	conv := &Conv{Weight: init.Normal(1/math.Sqrt(float64(fan)), shape, "", layout.Replicate()), config: c}
	if c.Bias {
		conv.Bias = init.Fill(0, []int{c.Out}, "", layout.Replicate())
	}
	return conv
}

// Forward returns the convolution of x, in x's type, whose sizes become
// ⌊(size + 2·Padding - Dilation·(K-1) - 1) / Stride⌋ + 1.
//
//	x [B, In, T]      →   [B, Out, T']        Conv1d
//	x [B, In, H, W]   →   [B, Out, H', W']    Conv2d
func (v *Conv) Forward(x *dtensor.Tensor) *dtensor.Tensor {
	c, dims := v.config, v.Weight.NDim()-2
	if x.NDim() != dims+2 || x.Dim(1) != c.In {
		fault.Throw(fmt.Errorf("nn: Conv%dd.Forward: %v: it wants [batch, %d channels] and %d dimensions of positions",
			dims, x.Layout(), c.In, dims))
	}
	patches, ok := sliding{c.Kernel, c.Stride, c.Padding, c.Dilation}.patches(x, 0)
	if !ok {
		fault.Throw(fmt.Errorf("nn: Conv%dd.Forward: %v is smaller than the kernel", dims, x.Layout()))
	}
	batch, window, sizes := x.Dim(0), patches.Dim(2), patches.Shape()[3:]
	positions := 1
	for _, size := range sizes {
		positions *= size
	}
	patches = patches.Reshape(batch, c.Groups, c.In/c.Groups*window, positions)
	weight := like(v.Weight, x).Reshape(c.Groups, c.Out/c.Groups, c.In/c.Groups*window)
	y := dtensor.Einsum("bgkn,gok->bgon", patches, weight).Reshape(append([]int{batch, c.Out}, sizes...)...)
	if v.Bias != nil {
		bias := like(v.Bias, x).Unsqueeze(1)
		if dims == 2 {
			bias = bias.Unsqueeze(1)
		}
		y = y.Add(bias)
	}
	return y
}

// Params lists weight and bias.
func (v *Conv) Params() Params { return (&Linear{Weight: v.Weight, Bias: v.Bias}).Params() }
