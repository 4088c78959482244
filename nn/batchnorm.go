package nn

import (
	"fmt"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// A BatchNorm normalises each channel by its mean and variance over the batch and all
// positions, as torch.nn.BatchNorm1d and 2d do: Ioffe and Szegedy, 2015.
//
// While training (see dtensor.Mesh.Training) it computes them over the whole batch, on all
// ranks that divide it, as PyTorch's SyncBatchNorm does, and moves the running averages
// towards them by Momentum; of one number a channel, which would become 0, it throws an error. Otherwise it normalises by the
// running averages.
type BatchNorm struct {
	Weight, Bias *dtensor.Tensor // [C]
	// RunningMean and RunningVar are no parameters, but go into checkpoints; see Buffered.
	RunningMean, RunningVar *dtensor.Tensor // float32 [C] R
	Momentum                float64
	Eps                     float64
}

// NewBatchNorm makes a BatchNorm of ones and zeros with Momentum 0.1 and Eps 1e-5.
func NewBatchNorm(init *Init, channels int) *BatchNorm {
	r := layout.Replicate()
	running := func(v float64) *dtensor.Tensor {
		return dtensor.Full(init.mesh, tensor.Float32, v, []int{channels}, init.mesh.Every(r)...)
	}
	n := &BatchNorm{Weight: init.Fill(1, []int{channels}, "", r), Bias: init.Fill(0, []int{channels}, "", r),
		RunningMean: running(0), RunningVar: running(1), Momentum: 0.1, Eps: 1e-5}
	dtensor.Keep(n.RunningMean, n.RunningVar)
	return n
}

// Forward normalises x, in x's type.
//
//	x [B, C] or [B, C, …]   →   the same
func (n *BatchNorm) Forward(x *dtensor.Tensor) *dtensor.Tensor {
	channels := n.RunningMean.Dim(0)
	shape := perChannel("BatchNorm", x, channels)
	count := float64(x.Numel() / max(channels, 1))
	training := x.Mesh().Training()
	if training && channels > 0 && count < 2 {
		fault.Throw(fmt.Errorf("nn: BatchNorm.Forward: %v has %v numbers a channel, and training takes their variance; give a batch of two "+
			"or more, or normalise by a LayerNorm or GroupNorm", x.Layout(), count))
	}
	wide := widened(x)
	weight, bias := like(n.Weight, wide), like(n.Bias, wide)
	if channels > 0 && count >= float64(planesFrom*x.Dim(0)) && wide.DType() == tensor.Float32 && fusible(wide, weight) &&
		fusible(wide, bias) && tensor.HasChannels(x.Mesh().Device()) {
		return n.fused(wide, weight, bias, training, count).Cast(x.DType())
	}
	if !training {
		running := func(v *dtensor.Tensor) *dtensor.Tensor { return v.Cast(wide.DType()).Reshape(shape...) }
		return n.normalize(wide, running(n.RunningMean), running(n.RunningVar)).Cast(x.DType())
	}
	mean, variance := moments(wide)
	n.update(n.RunningMean, mean, 1)
	n.update(n.RunningVar, variance, count/max(count-1, 1))
	return n.normalize(wide, mean, variance).Cast(x.DType())
}

// moments returns the mean and the variance of each channel, [C, 1, …].
func moments(x *dtensor.Tensor) (mean, variance *dtensor.Tensor) {
	dims := []int{0}
	for d := 2; d < x.NDim(); d++ {
		dims = append(dims, d)
	}
	return x.Mean(dims, true).Squeeze(0), x.Var(dims, 0, true).Squeeze(0)
}

// normalize is Forward by moments, [C, 1, …] in x's type.
func (n *BatchNorm) normalize(x, mean, variance *dtensor.Tensor) *dtensor.Tensor {
	y := x.Sub(mean).Mul(variance.AddScalar(n.Eps).Rsqrt())
	return y.Mul(like(n.Weight, x).Reshape(mean.Shape()...)).Add(like(n.Bias, x).Reshape(mean.Shape()...))
}

// planesFrom is from how many positions of an image on a channel is normalised by kernels.
const planesFrom = 8

// fused is Forward by kernels; count is how many numbers a channel has.
func (n *BatchNorm) fused(x, weight, bias *dtensor.Tensor, training bool, count float64) *dtensor.Tensor {
	channels := n.RunningMean.Dim(0)
	mean, variance := n.RunningMean.Cast(tensor.Float64).Redistribute(weight.Placements()...), n.RunningVar.Cast(tensor.Float64)
	shape := perChannel("BatchNorm", x, channels)
	composed := func() *dtensor.Tensor {
		return n.normalize(x, n.RunningMean.Reshape(shape...), n.RunningVar.Reshape(shape...))
	}
	by := tensor.ChannelNorm{}
	if training {
		by.N = count
		mean, variance = n.momentsOf(x, count)
		n.update(n.RunningMean, mean, 1)
		n.update(n.RunningVar, variance, count/max(count-1, 1))
		composed = func() *dtensor.Tensor {
			mean, variance := moments(x)
			return n.normalize(x, mean, variance)
		}
	}
	rstd := variance.AddScalar(n.Eps).Rsqrt().Redistribute(weight.Placements()...)
	by.Mean, by.Rstd, by.Weight, by.Bias = mean.Local(), rstd.Local(), weight.Local(), bias.Local()
	y := perBatch(x, x.Shape(), func() *tensor.Tensor { return by.Forward(x.Local()) })
	ofX := dtensor.Tracked(x)
	return dtensor.RecordComposed("BatchNorm", y, []*dtensor.Tensor{x, weight, bias}, func(gy *dtensor.Tensor) []dtensor.Grad {
		sums := summed(x, []int{2, channels}, func() *tensor.Tensor { return by.Sums(gy.Local(), x.Local()) }).Reduced()
		of := func(i int) dtensor.Grad {
			return dtensor.Dense(sums.Narrow(0, i, 1).Squeeze(0).Cast(x.DType()))
		}
		grads := []dtensor.Grad{{}, of(1), of(0)}
		if ofX {
			grads[0] = dtensor.Dense(perBatch(x, x.Shape(), func() *tensor.Tensor { return by.Grad(gy.Local(), x.Local(), sums.Local()) }))
		}
		return grads
	}, composed)
}

// momentsOf returns the mean and the variance of each channel, float64 [C] R, of which each rank computes those of its part of the batch.
func (n *BatchNorm) momentsOf(x *dtensor.Tensor, count float64) (mean, variance *dtensor.Tensor) {
	channels, mine := x.Dim(1), 0.0
	var local *tensor.Tensor
	if x.Mesh().Inside() {
		local, mine = tensor.ChannelMoments(x.Local()), float64(x.Local().Numel()/channels)
	}
	part := func(i int) *tensor.Tensor { return tensor.Narrow(local, 0, i, 1).Reshape(channels) }
	mean = summed(x, []int{channels}, func() *tensor.Tensor { return tensor.MulScalar(part(0), mine/count) }).Reduced()
	squares := summed(x, []int{channels}, func() *tensor.Tensor {
		off := tensor.Binary(kernel.OpSub, part(0), mean.Local())
		return tensor.Add(part(1), tensor.MulScalar(tensor.Mul(off, off), mine))
	}).Reduced()
	return mean, squares.Scale(1 / count)
}

// perChannel returns the shape in which numbers of channels broadcast over x, [B, C] or [B, C, …]: [C, 1, …]. It refuses other shapes.
func perChannel(layer string, x *dtensor.Tensor, channels int) []int {
	if x.NDim() < 2 || x.Dim(1) != channels {
		fault.Throw(fmt.Errorf("nn: %s.Forward: %v: it wants [batch, %d channels] and any positions", layer, x.Layout(), channels))
	}
	shape := []int{channels}
	for range x.NDim() - 2 {
		shape = append(shape, 1)
	}
	return shape
}

// update moves a running average towards new, scaled, in place.
func (n *BatchNorm) update(running, new *dtensor.Tensor, scale float64) {
	if running.Mesh().Replaying() {
		return
	}
	running.Mesh().NoteState("BatchNorm", running)
	next := running.Scale(1 - n.Momentum).Add(new.Detach().Cast(running.DType()).Reshape(running.Dim(0)).Scale(n.Momentum * scale))
	next = next.Redistribute(running.Placements()...)
	if running.Mesh().Inside() {
		tensor.Copy(running.Local(), next.Local())
	}
}

// Params lists weight and bias.
func (n *BatchNorm) Params() Params { return weightAndBias(n.Weight, n.Bias) }

// Buffers lists the running averages, under the names that PyTorch gives them.
func (n *BatchNorm) Buffers() Params {
	return func(yield func(string, *dtensor.Tensor) bool) {
		_ = yield("running_mean", n.RunningMean) && yield("running_var", n.RunningVar)
	}
}
