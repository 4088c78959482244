package optim

import (
	"cmp"
	"fmt"
	"iter"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// An RpropConfig sets up Rprop. The zero value has the usual constants.
type RpropConfig struct {
	Shrink   float64 // the factor of a step size when the gradient has changed its sign; 0 stands for 0.5
	Grow     float64 // its factor when the gradient has not; 0 stands for 1.2
	Least    float64 // the smallest step size; 0 stands for 1e-6
	Most     float64 // the largest; 0 stands for 50
	NoMaster bool    // no float32 weights beside parameters of a narrow type; see the package's section on them
}

// Rprop moves each element by a step size of its own, in the direction of the gradient's sign alone, as torch.optim.Rprop
// (Riedmiller and Braun, IEEE International Conference on Neural Networks, 1993). It is made for gradients of all data at
// once. For each parameter p with gradient g, the gradient h of the step before, 0 at first, and step sizes s, the rate of
// the first step at first,
//
//	s *= Grow     where g·h > 0
//	s *= Shrink   where g·h < 0, and g = 0 there
//	s = min(max(s, Least), Most)
//	p -= s·sign(g)
//	h = g
//
// The rates of later steps do not matter, but that a step of rate 0 changes nothing. A row-sparse gradient is that of a
// parameter whose other rows have the gradient 0.
type Rprop struct {
	base
	config      RpropConfig
	sizes, last []*dtensor.Tensor
}

// NewRprop returns an Rprop for params. It throws an error that names the field if the configuration makes no sense.
func NewRprop(params []*dtensor.Tensor, c RpropConfig) *Rprop {
	const op = "NewRprop"
	c.Shrink, c.Grow = cmp.Or(c.Shrink, 0.5), cmp.Or(c.Grow, 1.2)
	c.Least, c.Most = cmp.Or(c.Least, 1e-6), cmp.Or(c.Most, 50)
	inUnit(op, "Shrink", c.Shrink)
	atLeastZero(op, "Least", c.Least)
	if !(c.Grow > 1) || !(c.Most >= c.Least) {
		fault.Throw(fmt.Errorf("optim: %s: Grow is %v, Least %v and Most %v; Grow must be above 1, and Most not below Least",
			op, c.Grow, c.Least, c.Most))
	}
	return &Rprop{base: newBase("Rprop", params, c.NoMaster), config: c, sizes: states(params), last: states(params)}
}

// State lists the step sizes, "size", the gradients of the step before, "last", and the steps.
func (r *Rprop) State() iter.Seq2[string, *dtensor.Tensor] {
	return r.list(kind{"size", r.sizes}, kind{"last", r.last})
}

// Step makes one step; see Optimizer.
func (r *Rprop) Step(grads []dtensor.Grad, lr float64) error {
	o := r.config
	return r.step(grads, lr, true, func(c change) {
		if lr == 0 {
			return
		}
		c.apply(func(p, g *tensor.Tensor, state []*tensor.Tensor) {
			size, last := state[0], state[1]
			tensor.Copy(size, tensor.MaskedFill(size, tensor.CompareScalar(kernel.OpEq, size, 0), lr)) // in the first step
			product := tensor.Binary(kernel.OpMul, g, last)
			turned := tensor.CompareScalar(kernel.OpLt, product, 0)
			next := tensor.Where(tensor.CompareScalar(kernel.OpGt, product, 0), tensor.MulScalar(size, o.Grow), size)
			next = tensor.Where(turned, tensor.MulScalar(size, o.Shrink), next)
			tensor.Copy(size, tensor.Clamp(next, o.Least, o.Most))
			tensor.Copy(last, tensor.MaskedFill(g, turned, 0))
			tensor.AddScaledTo(p, -1, tensor.Binary(kernel.OpMul, size, tensor.Unary(kernel.OpSign, last)))
		}, r.sizes, r.last)
	})
}
