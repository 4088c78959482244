package nn

import (
	"fmt"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
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
	dims := []int{0}
	for d := 2; d < x.NDim(); d++ {
		dims = append(dims, d)
	}
	wide := x.Cast(x.DType().Wide())
	mean, variance := n.RunningMean.Cast(wide.DType()).Reshape(shape...), n.RunningVar.Cast(wide.DType()).Reshape(shape...)
	if x.Mesh().Training() {
		count := float64(x.Numel() / max(channels, 1))
		if channels > 0 && count < 2 {
			fault.Throw(fmt.Errorf("nn: BatchNorm.Forward: %v has %v numbers a channel, and training takes their variance; give a batch of two "+
				"or more, or normalise by a LayerNorm or GroupNorm", x.Layout(), count))
		}
		mean, variance = wide.Mean(dims, true).Squeeze(0), wide.Var(dims, 0, true).Squeeze(0)
		n.update(n.RunningMean, mean, 1)
		n.update(n.RunningVar, variance, count/max(count-1, 1))
	}
	y := wide.Sub(mean).Mul(variance.AddScalar(n.Eps).Rsqrt())
	return y.Mul(like(n.Weight, wide).Reshape(shape...)).Add(like(n.Bias, wide).Reshape(shape...)).Cast(x.DType())
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
