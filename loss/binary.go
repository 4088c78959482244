package loss

import (
	"fmt"
	"math"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
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
// logits of bfloat16 the targets are bfloat16 or float32, the computation and the loss float32, and
// the gradient bfloat16. BinaryCrossEntropy throws an *Error for shapes or types that differ.
func BinaryCrossEntropy(logits, targets *dtensor.Tensor, r Reduction) *dtensor.Tensor {
	defer logits.Mesh().Span("BinaryCrossEntropy").End()
	const op = "BinaryCrossEntropy"
	checkType(op, logits)
	switch {
	case r >= reductions:
		refuse(op, fmt.Sprintf("Reduction is %d; use Mean, Sum or None", r))
	case targets.DType() != logits.DType() && targets.DType() != logits.DType().Wide():
		refuse(op, fmt.Sprintf("logits %v and targets %v: both must be of one floating-point type; Cast the targets to %v", logits, targets,
			logits.DType().Wide()))
	case !slices.Equal(logits.Shape(), targets.Shape()):
		refuse(op, fmt.Sprintf("logits %v and targets %v: give one target for each logit", logits, targets))
	case logits.Mesh() != targets.Mesh():
		refuse(op, fmt.Sprintf("logits are on mesh %v and targets on another, %v; move one of them", logits.Mesh(), targets.Mesh()))
	}
	logits = logits.Reduced()
	dt := logits.DType()
	targets = targets.Redistribute(logits.Placements()...).Cast(dt.Wide())
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
	return dtensor.RecordComposed(op, out, []*dtensor.Tensor{logits, targets}, func(gy *dtensor.Tensor) []dtensor.Grad {
		grads := make([]dtensor.Grad, 2)
		if wantX {
			grads[0] = dtensor.Dense(x.Sigmoid().Sub(y).Mul(gy).Scale(scale).Cast(dt))
		}
		if wantY {
			grads[1] = dtensor.Dense(x.Mul(gy).Scale(-scale))
		}
		return grads
	}, func() *dtensor.Tensor {
		x := logits.Cast(dt.Wide())
		return reduced(x.Softplus().Sub(x.Mul(targets)), r)
	})
}

// BinaryCrossEntropyWithPosWeight is BinaryCrossEntropy with the part of the targets that are 1 multiplied by posWeight,
// as the pos_weight of torch's binary_cross_entropy_with_logits:
//
//	loss = posWeight·y·log(1 + exp(-x)) + (1 - y)·log(1 + exp(x))
//
// posWeight broadcasts to the logits, as one factor for each class does to [N, C].
func BinaryCrossEntropyWithPosWeight(logits, targets, posWeight *dtensor.Tensor, r Reduction) *dtensor.Tensor {
	wide := logits.DType().Wide()
	if targets.DType() != logits.DType() {
		logits = logits.Cast(wide)
	}
	x, y := operands("BinaryCrossEntropyWithPosWeight", r, logits, targets)
	ones := y.Mul(posWeight.Cast(wide)).Mul(x.LogSigmoid())
	zeros := y.Neg().AddScalar(1).Mul(x.Neg().LogSigmoid())
	return reduced(ones.Add(zeros).Neg(), r)
}

// BinaryCrossEntropyOfProbabilities returns the cross-entropy of probabilities against targets between 0 and 1, for each
// position, as torch's binary_cross_entropy
//
//	loss = -y·max(ln p, -100) - (1 - y)·max(ln(1 - p), -100)
//
// Operands and result are as those of MSE. The gradient of the probabilities is (p - y)/max(p·(1 - p), 1e-12). Where there are
// logits, BinaryCrossEntropy of them keeps digits that probabilities near 0 and 1 have lost. It throws an *Error for a
// probability that is not from 0 to 1: where these are sharded that aborts the mesh.
func BinaryCrossEntropyOfProbabilities(probs, targets *dtensor.Tensor, r Reduction) *dtensor.Tensor {
	const op = "BinaryCrossEntropyOfProbabilities"
	probs, targets = operands(op, r, probs, targets)
	probs = probs.Reduced()
	targets = targets.Redistribute(probs.Placements()...)
	cost := func(p, y *dtensor.Tensor) (losses, one, zero *dtensor.Tensor) {
		one, zero = p.Log().Clamp(-100, math.Inf(1)), p.Neg().Log1p().Clamp(-100, math.Inf(1))
		return y.Mul(one).Add(y.Neg().AddScalar(1).Mul(zero)).Neg(), one, zero
	}
	p, y := probs.Detach(), targets.Detach()
	wantProbabilities(op, p)
	losses, one, zero := cost(p, y)
	losses = dtensor.RecordComposed(op, losses, []*dtensor.Tensor{probs, targets}, func(gy *dtensor.Tensor) []dtensor.Grad {
		slope := p.Sub(y).Div(p.Mul(p.Neg().AddScalar(1)).Clamp(1e-12, math.Inf(1)))
		return []dtensor.Grad{dtensor.Dense(slope.Mul(gy)), dtensor.Dense(zero.Sub(one).Mul(gy))}
	}, func() *dtensor.Tensor {
		losses, _, _ := cost(probs, targets)
		return losses
	})
	return reduced(losses, r)
}

// wantProbabilities throws unless all elements are from 0 to 1. Where they are sharded this rank alone may see it, and aborts the mesh.
func wantProbabilities(op string, p *dtensor.Tensor) {
	if !p.Mesh().Inside() {
		return
	}
	wrong := tensor.Compare(kernel.OpNe, p.Local(), tensor.Clamp(p.Local(), 0, 1))
	if tensor.ToSlice[int64](tensor.Sum(tensor.Cast(wrong, tensor.Int64), nil, false))[0] == 0 {
		return
	}
	list := tensor.ToSlice[float64](tensor.Cast(p.Local(), tensor.Float64))
	i := slices.IndexFunc(list, func(v float64) bool { return !(v >= 0 && v <= 1) })
	at, offset := tensor.UnravelIndex(i, p.LocalShape()), p.Layout().Offset(p.Mesh().Coord())
	for d := range at {
		at[d] += offset[d]
	}
	err := &Error{Op: op, Detail: fmt.Sprintf("the probability at %v is %v; give numbers from 0 to 1, as Sigmoid does", at, list[i])}
	refuseElement(p.Mesh(), err, slices.ContainsFunc(p.Placements(), layout.Placement.IsShard))
}

// refuseElement throws what is wrong with an element. divided says that other ranks do not have it: then they cannot see it, and
// the mesh is aborted.
func refuseElement(m *dtensor.Mesh, err *Error, divided bool) {
	if divided {
		m.Comm().Abort(err)
	}
	fault.Throw(err)
}
