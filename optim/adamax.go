package optim

import (
	"cmp"
	"iter"
	"math"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// An AdamaxConfig sets up Adamax. The zero value has the paper's constants.
type AdamaxConfig struct {
	Beta1       float64 // decay of the mean of gradients; 0 stands for 0.9
	Beta2       float64 // decay of the largest gradient; 0 stands for 0.999
	Eps         float64 // added to the gradient's size; 0 stands for 1e-8
	WeightDecay float64 // added to the gradient, times the parameter
	NoMaster    bool    // no float32 weights beside parameters of a narrow type; see the package's section on them
}

// Adamax is Adamax as in torch.optim.Adamax (Kingma and Ba, arXiv 1412.6980, algorithm 2):
// Adam with the largest gradient in place of the mean square. For each parameter p with
// gradient g, at step t from 1 on,
//
//	g += WeightDecay·p
//	m = Beta1·m + (1-Beta1)·g
//	u = max(Beta2·u, |g| + Eps)
//	p -= lr/(1-Beta1^t)·m/u
//
// A row-sparse gradient is that of a parameter whose other rows have the gradient 0.
type Adamax struct {
	base
	config AdamaxConfig
	m, u   []*dtensor.Tensor
}

// NewAdamax returns an Adamax for params. It throws an error that names the field if the
// configuration makes no sense.
func NewAdamax(params []*dtensor.Tensor, c AdamaxConfig) *Adamax {
	const op = "NewAdamax"
	c.Beta1, c.Beta2, c.Eps = cmp.Or(c.Beta1, 0.9), cmp.Or(c.Beta2, 0.999), cmp.Or(c.Eps, 1e-8)
	inUnit(op, "Beta1", c.Beta1)
	inUnit(op, "Beta2", c.Beta2)
	atLeastZero(op, "Eps", c.Eps)
	atLeastZero(op, "WeightDecay", c.WeightDecay)
	return &Adamax{base: newBase("Adamax", params, c.NoMaster), config: c, m: states(params), u: states(params)}
}

// State lists the means, "m", the largest gradients, "u", and the steps.
func (a *Adamax) State() iter.Seq2[string, *dtensor.Tensor] {
	return a.list(kind{"m", a.m}, kind{"u", a.u})
}

// Step makes one step; see Optimizer.
func (a *Adamax) Step(grads []dtensor.Grad, lr float64) error {
	o := a.config
	return a.step(grads, lr, true, func(c change) {
		rate := lr / (1 - math.Pow(o.Beta1, float64(c.step)))
		c.apply(func(p, g *tensor.Tensor, s []*tensor.Tensor) {
			g = decayed(g, p, o.WeightDecay)
			m, u := s[0], s[1]
			average(m, o.Beta1, g)
			tensor.ScaleTo(u, o.Beta2)
			tensor.BinaryTo(u, kernel.OpMaximum, u, tensor.AddScalar(tensor.Unary(kernel.OpAbs, g), o.Eps))
			tensor.AddScaledTo(p, -rate, tensor.Binary(kernel.OpDiv, m, u))
		}, a.m, a.u)
	})
}
