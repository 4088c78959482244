package nn

import (
	"cmp"
	"fmt"
	"math"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// A PoolConfig describes the windows of a Pool. Kernel is needed.
type PoolConfig struct {
	Kernel   int // K: the size of a window along each dimension
	Stride   int // 0: Kernel, so that windows do not overlap
	Padding  int // elements on each side of each dimension, at most Kernel/2: zeros of a mean, which count; -∞ of a maximum
	Dilation int // how far apart a window's elements are; 0: 1; of a maximum only
}

// A Pool is the largest element, or the mean, of each window of signals, images or volumes, as torch.nn.MaxPool1d,
// MaxPool2d, MaxPool3d, AvgPool1d, AvgPool2d and AvgPool3d compute it. Batches and channels may be sharded, S(0) and S(1).
// It makes the windows first, which take K/Stride, (K/Stride)² or (K/Stride)³ times the memory of x.
type Pool struct {
	config PoolConfig
	dims   int
	mean   bool
}

// NewMaxPool1d makes a Pool of the largest elements of signals [B, C, T].
func NewMaxPool1d(c PoolConfig) *Pool { return newPool("NewMaxPool1d", c, 1, false) }

// NewMaxPool2d makes a Pool of the largest elements of images [B, C, H, W].
func NewMaxPool2d(c PoolConfig) *Pool { return newPool("NewMaxPool2d", c, 2, false) }

// NewMaxPool3d makes a Pool of the largest elements of volumes [B, C, D, H, W].
func NewMaxPool3d(c PoolConfig) *Pool { return newPool("NewMaxPool3d", c, 3, false) }

// NewAvgPool1d makes a Pool of means of signals [B, C, T].
func NewAvgPool1d(c PoolConfig) *Pool { return newPool("NewAvgPool1d", c, 1, true) }

// NewAvgPool2d makes a Pool of means of images [B, C, H, W].
func NewAvgPool2d(c PoolConfig) *Pool { return newPool("NewAvgPool2d", c, 2, true) }

// NewAvgPool3d makes a Pool of means of volumes [B, C, D, H, W].
func NewAvgPool3d(c PoolConfig) *Pool { return newPool("NewAvgPool3d", c, 3, true) }

func newPool(op string, c PoolConfig, dims int, mean bool) *Pool {
	c.Stride = cmp.Or(c.Stride, c.Kernel)
	if c.Dilation = cmp.Or(c.Dilation, 1); mean && c.Dilation != 1 {
		fault.Throw(fmt.Errorf("nn: %s: %+v: a mean has no Dilation", op, c))
	}
	if min(c.Kernel, c.Stride, c.Dilation) < 1 || c.Padding < 0 || c.Padding > c.Kernel/2 {
		fault.Throw(fmt.Errorf("nn: %s: %+v: Kernel, Stride and Dilation have to be positive, and Padding from 0 to half of Kernel", op, c))
	}
	return &Pool{config: c, dims: dims, mean: mean}
}

// Forward returns what x has in each window, in x's type. Sizes become
// ⌊(size + 2·Padding - Dilation·(K-1) - 1) / Stride⌋ + 1.
//
//	x [B, C, T]         →   [B, C, T']            1d
//	x [B, C, H, W]      →   [B, C, H', W']        2d
//	x [B, C, D, H, W]   →   [B, C, D', H', W']    3d
//
// The gradient of a maximum goes to the first of the elements that equal it, and NaN is larger than all.
func (p *Pool) Forward(x *dtensor.Tensor) *dtensor.Tensor {
	if x.NDim() != p.dims+2 {
		fault.Throw(fmt.Errorf("nn: Pool.Forward: %v: it wants [batch, channels] and %d dimensions of positions", x.Layout(), p.dims))
	}
	fill := math.Inf(-1)
	if p.mean {
		fill = 0
	}
	c := p.config
	y, ok := sliding{c.Kernel, c.Stride, c.Padding, c.Dilation}.patches(x, fill)
	if !ok {
		fault.Throw(fmt.Errorf("nn: Pool.Forward: %v is smaller than the window", x.Layout()))
	}
	if p.mean {
		return y.Mean([]int{2}, false)
	}
	return y.Gather(2, y.Detach().Argmax(2, true)).Squeeze(2)
}

// Params lists nothing.
func (p *Pool) Params() Params { return func(func(string, *dtensor.Tensor) bool) {} }
