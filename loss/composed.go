package loss

import (
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// composed is CrossEntropy, and with log NLLLoss, by operators that can be differentiated twice: see dtensor.Gradients.
func composed(logits, targets *dtensor.Tensor, o Options, log bool) *dtensor.Tensor {
	x := logits.Cast(logits.DType().Wide())
	class := min(1, x.NDim()-1)
	dt, size, mesh := x.DType(), x.Dim(class), x.Mesh()
	logp := x
	if !log {
		logp = x.LogSoftmax(class)
	}
	weight := dtensor.Full(mesh, dt, 1, []int{size}, mesh.Every(layout.Replicate())...)
	if o.Weight != nil {
		weight = o.Weight.Detach().Cast(dt).Redistribute(mesh.Every(layout.Replicate())...)
	}
	along := slices.Repeat([]int{1}, x.NDim()) // the shape in which one number for each class broadcasts to x
	along[class] = size
	classes := []int{class}
	var losses, share *dtensor.Tensor // of each position; its part in the denominator of the mean
	zLoss := func() *dtensor.Tensor { // of each position
		return x.Narrow(class, 0, 1).Sub(logp.Narrow(class, 0, 1)).Squeeze(class).Square().Scale(o.ZLoss)
	}
	if targets.DType().Float() {
		q := targets.Cast(dt).Scale(1 - o.LabelSmoothing).AddScalar(o.LabelSmoothing / float64(size))
		losses = q.Mul(weight.Reshape(along...)).Mul(logp).Sum(classes, false).Neg()
		share = dtensor.Full(mesh, dt, 1, losses.Shape(), mesh.Every(layout.Replicate())...)
		if o.ZLoss > 0 {
			losses = losses.Add(zLoss())
		}
	} else {
		used := targets.CompareScalar(kernel.OpNe, float64(o.ignored()))
		y := targets.MaskedFill(used.LogicalNot(), 0)
		share = weight.IndexSelect(0, y.Reshape(y.Numel())).Reshape(y.Shape()...).Mul(used.Cast(dt))
		losses = logp.Gather(class, y.Unsqueeze(class)).Squeeze(class).Mul(share).Neg()
		if o.LabelSmoothing > 0 {
			all := logp.Mul(weight.Reshape(along...)).Sum(classes, false).Neg().Mul(used.Cast(dt))
			losses = losses.Scale(1 - o.LabelSmoothing).Add(all.Scale(o.LabelSmoothing / float64(size)))
		}
		if o.ZLoss > 0 {
			losses = losses.Add(zLoss().Mul(used.Cast(dt)))
		}
	}
	switch o.Reduction {
	case Sum:
		return losses.Sum(nil, false)
	case Mean:
		return losses.Sum(nil, false).Div(share.Sum(nil, false))
	}
	return losses
}
