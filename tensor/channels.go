package tensor

import (
	"slices"

	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// HasChannels reports whether a device has the kernels of ChannelMoments and its kin, which take Float32.
func HasChannels(dev Device) bool {
	_, ok := dev.(kernel.Channels)
	return ok
}

// A ChannelNorm normalises the channels of x [B, C, …], float32, by Mean and Rstd, float64 [C]: with h = (x - Mean)·Rstd it is
// h·Weight + Bias, which are float32 [C]. N is over how many elements of a channel Mean and Rstd were computed, on all ranks; 0 if they
// do not depend on x.
type ChannelNorm struct {
	Mean, Rstd, Weight, Bias *Tensor
	N                        float64
}

// ChannelMoments returns the mean of each channel of x [B, C, …] and the sum of the squares of the distances from it, float64 [2, C].
func ChannelMoments(x *Tensor) *Tensor {
	const op = "ChannelMoments"
	n := channelsOf(op, x)
	sums := alloc(op, x.dev, Float64, []int{2, n.Channels})
	n.X, n.Sums = x.ptr(op), sums.addr
	kernelsOfChannels(op, x.dev).ChannelMoments(n)
	keepAlive(x)
	return sums
}

// Forward returns x normalised.
func (v ChannelNorm) Forward(x *Tensor) *Tensor {
	const op = "ChannelNorm"
	n := v.operands(op, x)
	y := allocLike(op, x)
	n.X, n.Y, n.Bias = x.ptr(op), y.addr, v.Bias.ptr(op)
	kernelsOfChannels(op, x.dev).ChannelNorm(n)
	v.done(x)
	return y
}

// Sums returns the sums over each channel of dy and of dy·h, float64 [2, C]: the gradients of Bias and Weight.
func (v ChannelNorm) Sums(dy, x *Tensor) *Tensor {
	const op = "ChannelNormSums"
	n := v.operands(op, x)
	wantSameType(op, x, dy)
	wantSameShape(op, x, dy)
	sums := alloc(op, x.dev, Float64, []int{2, n.Channels})
	n.X, n.DY, n.Sums = x.ptr(op), dy.ptr(op), sums.addr
	kernelsOfChannels(op, x.dev).ChannelNormSums(n)
	v.done(dy, x)
	return sums
}

// Grad returns the gradient of x. sums are those of all ranks.
func (v ChannelNorm) Grad(dy, x, sums *Tensor) *Tensor {
	const op = "ChannelNormGrad"
	n := v.operands(op, x)
	wantSameType(op, x, dy)
	wantSameShape(op, x, dy)
	if !slices.Equal(sums.Shape(), []int{2, n.Channels}) || sums.dtype != Float64 {
		throwShape(op, "sums %v are not those of x %v", sums.brief(), x.brief())
	}
	dx := allocLike(op, x)
	n.X, n.DY, n.Sums, n.DX = x.ptr(op), dy.ptr(op), sums.ptr(op), dx.addr
	kernelsOfChannels(op, x.dev).ChannelNormGrad(n)
	v.done(dy, x, sums)
	return dx
}

// channelsOf checks x and returns its sizes.
func channelsOf(op string, x *Tensor) kernel.ChannelNorm {
	if x.ndim < 2 || x.dtype != Float32 {
		throwShape(op, "x %v: want float32 [batch, channels, …]", x.brief())
	}
	n := kernel.ChannelNorm{Batch: x.dims[0], Channels: x.dims[1], Positions: 1}
	for _, size := range x.Shape()[2:] {
		n.Positions *= size
	}
	return n
}

// operands checks the operands and returns those of each kernel; the caller sets the addresses of the others.
func (v ChannelNorm) operands(op string, x *Tensor) kernel.ChannelNorm {
	n := channelsOf(op, x)
	n.N = v.N
	for _, t := range []*Tensor{v.Mean, v.Rstd, v.Weight, v.Bias} {
		wantSameDevice(op, x, t)
		if want := t == v.Mean || t == v.Rstd; !slices.Equal(t.Shape(), []int{n.Channels}) || want != (t.dtype == Float64) {
			throwShape(op, "%v: want [%d], float64 of Mean and Rstd, float32 of Weight and Bias", t.brief(), n.Channels)
		}
	}
	n.Mean, n.Rstd, n.Weight = v.Mean.ptr(op), v.Rstd.ptr(op), v.Weight.ptr(op)
	return n
}

// done keeps the operands until the kernel has been called.
func (v ChannelNorm) done(ts ...*Tensor) { keepAlive(append(ts, v.Mean, v.Rstd, v.Weight, v.Bias)...) }

// kernelsOfChannels returns the kernels of channels of a device.
func kernelsOfChannels(op string, dev Device) kernel.Channels {
	k, ok := dev.(kernel.Channels)
	if !ok {
		throwUse(op, "%v has no kernel for it", dev)
	}
	return k
}
