package optim

import (
	"cmp"
	"iter"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// A LionConfig sets up Lion. The zero value has the paper's constants and no weight decay.
type LionConfig struct {
	Beta1       float64 // weight of the mean in the direction of a step; 0 stands for 0.9
	Beta2       float64 // decay of the mean of gradients; 0 stands for 0.99
	WeightDecay float64 // decoupled: each step multiplies the parameter by 1 - lr·WeightDecay
	NoMaster    bool    // no float32 weights beside parameters of a narrow type; see the package's section on them
}

// Lion moves every element by the same amount, in the direction of a mean of gradients
// (Chen et al., Symbolic Discovery of Optimization Algorithms, arXiv 2302.06675,
// program 1). It has one state where Adam has two. For each parameter p with gradient g,
//
//	p *= 1 - lr·WeightDecay
//	p -= lr·sign(Beta1·m + (1-Beta1)·g)
//	m = Beta2·m + (1-Beta2)·g
//
// Its rate is 3 to 10 times lower than Adam's, and its weight decay higher by as much. A
// row-sparse gradient is that of a parameter whose other rows have the gradient 0.
type Lion struct {
	base
	config LionConfig
	m      []*dtensor.Tensor
}

// NewLion returns a Lion for params. It throws an error that names the field if the
// configuration makes no sense.
func NewLion(params []*dtensor.Tensor, c LionConfig) *Lion {
	const op = "NewLion"
	c.Beta1, c.Beta2 = cmp.Or(c.Beta1, 0.9), cmp.Or(c.Beta2, 0.99)
	inUnit(op, "Beta1", c.Beta1)
	inUnit(op, "Beta2", c.Beta2)
	atLeastZero(op, "WeightDecay", c.WeightDecay)
	return &Lion{base: newBase("Lion", params, c.NoMaster), config: c, m: states(params)}
}

// State lists the means, "m", and the steps.
func (l *Lion) State() iter.Seq2[string, *dtensor.Tensor] { return l.list(kind{"m", l.m}) }

// Step makes one step; see Optimizer.
func (l *Lion) Step(grads []dtensor.Grad, lr float64) error {
	o := l.config
	return l.step(grads, lr, true, func(c change) {
		c.apply(func(p, g *tensor.Tensor, s []*tensor.Tensor) {
			m := s[0]
			toward := tensor.Clone(m)
			average(toward, o.Beta1, g)
			if o.WeightDecay != 0 {
				tensor.ScaleTo(p, 1-lr*o.WeightDecay)
			}
			tensor.AddScaledTo(p, -lr, tensor.Unary(kernel.OpSign, toward))
			average(m, o.Beta2, g)
		}, l.m)
	})
}
