package optim

import (
	"cmp"
	"iter"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// An AdadeltaConfig sets up Adadelta. The zero value has the usual constants.
type AdadeltaConfig struct {
	Rho         float64 // decay of both means of squares; 0 stands for 0.9
	Eps         float64 // added to the means below the root; 0 stands for 1e-6
	WeightDecay float64 // added to the gradient, times the parameter
	NoMaster    bool    // no float32 weights beside parameters of a narrow type; see the package's section on them
}

// Adadelta is Adadelta as in torch.optim.Adadelta (Zeiler, arXiv 1212.5701), whose steps
// have the unit of the parameter. Its usual rate is 1. For each parameter p with gradient g,
//
//	g += WeightDecay·p
//	v = Rho·v + (1-Rho)·g²
//	d = √(u + Eps)/√(v + Eps)·g
//	u = Rho·u + (1-Rho)·d²
//	p -= lr·d
//
// A row-sparse gradient is that of a parameter whose other rows have the gradient 0.
type Adadelta struct {
	base
	config           AdadeltaConfig
	squares, changes []*dtensor.Tensor
}

// NewAdadelta returns an Adadelta for params. It throws an error that names the field if
// the configuration makes no sense.
func NewAdadelta(params []*dtensor.Tensor, c AdadeltaConfig) *Adadelta {
	const op = "NewAdadelta"
	c.Rho, c.Eps = cmp.Or(c.Rho, 0.9), cmp.Or(c.Eps, 1e-6)
	inUnit(op, "Rho", c.Rho)
	atLeastZero(op, "Eps", c.Eps)
	atLeastZero(op, "WeightDecay", c.WeightDecay)
	return &Adadelta{base: newBase("Adadelta", params, c.NoMaster), config: c, squares: states(params), changes: states(params)}
}

// State lists the means of squared gradients, "v", those of squared steps, "u", and the
// steps.
func (a *Adadelta) State() iter.Seq2[string, *dtensor.Tensor] {
	return a.list(kind{"v", a.squares}, kind{"u", a.changes})
}

// Step makes one step; see Optimizer.
func (a *Adadelta) Step(grads []dtensor.Grad, lr float64) error {
	o := a.config
	root := func(x *tensor.Tensor) *tensor.Tensor { return tensor.Unary(kernel.OpSqrt, tensor.AddScalar(x, o.Eps)) }
	return a.step(grads, lr, true, func(c change) {
		c.apply(func(p, g *tensor.Tensor, s []*tensor.Tensor) {
			g = decayed(g, p, o.WeightDecay)
			v, u := s[0], s[1]
			average(v, o.Rho, square(g))
			d := tensor.Mul(tensor.Binary(kernel.OpDiv, root(u), root(v)), g)
			average(u, o.Rho, square(d))
			tensor.AddScaledTo(p, -lr, d)
		}, a.squares, a.changes)
	})
}
