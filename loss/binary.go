package loss

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
)

// BinaryCrossEntropy returns the cross-entropy of logits of one class against
// targets between 0 and 1, for each position
//
//	loss = max(x, 0) - x·y + log(1 + exp(-|x|))
//
// which neither overflows nor cancels, as torch's
// binary_cross_entropy_with_logits.
//
//	logits [...]   targets [...]   →   [] for Mean and Sum, [...] for None
//
//	logits   targets   result
//	R        R         R
//	S(d)     any       R after 1 collective of a number; S(d) for None
//
// Targets are redistributed to the layout of the logits. The gradient of the logits,
// sigmoid(x) - y, has their layout, and so has that of the targets, -x, where they depend
// on a parameter. Partial logits are reduced first. The mean of no positions is NaN. With
// logits of bfloat16 the targets, the computation and the loss are float32, and the gradient
// is bfloat16. BinaryCrossEntropy throws an *Error for shapes or types that differ.
func BinaryCrossEntropy(logits, targets *dtensor.Tensor, r Reduction) *dtensor.Tensor {
	defer logits.Mesh().Span("BinaryCrossEntropy").End()
	const op = "BinaryCrossEntropy"
	checkType(op, logits)
	switch {
	case r >= reductions:
		refuse(op, fmt.Sprintf("Reduction is %d; use Mean, Sum or None", r))
	case targets.DType() != logits.DType().Wide():
		refuse(op, fmt.Sprintf("logits %v and targets %v: both must be of one floating-point type, targets of bfloat16 logits float32", logits,
			targets))
	case !slices.Equal(logits.Shape(), targets.Shape()):
		refuse(op, fmt.Sprintf("logits %v and targets %v: give one target for each logit", logits, targets))
	case logits.Mesh() != targets.Mesh():
		refuse(op, fmt.Sprintf("logits are on mesh %v and targets on another, %v; move one of them", logits.Mesh(), targets.Mesh()))
	}
	logits = logits.Reduced()
	dt := logits.DType()
	targets = targets.Redistribute(logits.Placements()...)
	x, y := logits.Detach().Cast(dt.Wide()), targets.Detach()
	losses := x.Relu().Sub(x.Mul(y)).Add(x.Abs().Neg().Exp().Log1p())
	scale := 1.0
	out := losses
	if r != None {
		out = losses.Sum(nil, false).Redistribute(x.Mesh().Every(layout.Replicate())...)
	}
	if r == Mean {
		scale = 1 / float64(x.Numel())
		out = out.Scale(scale)
	}
	wantX, wantY := dtensor.Tracked(logits), dtensor.Tracked(targets)
	return dtensor.Record(op, out, []*dtensor.Tensor{logits, targets}, func(gy *dtensor.Tensor) []dtensor.Grad {
		grads := make([]dtensor.Grad, 2)
		if wantX {
			grads[0] = dtensor.Dense(x.Sigmoid().Sub(y).Mul(gy).Scale(scale).Cast(dt))
		}
		if wantY {
			grads[1] = dtensor.Dense(x.Mul(gy).Scale(-scale))
		}
		return grads
	})
}
