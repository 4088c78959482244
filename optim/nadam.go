package optim

import (
	"cmp"
	"iter"
	"math"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
)

// An NAdamConfig sets up NAdam. The zero value has the usual constants.
type NAdamConfig struct {
	Beta1         float64 // decay of the mean of gradients; 0 stands for 0.9
	Beta2         float64 // decay of the mean of squares; 0 stands for 0.999
	Eps           float64 // added to the root; 0 stands for 1e-8
	MomentumDecay float64 // how fast the momentum rises to Beta1; 0 stands for 0.004
	WeightDecay   float64 // added to the gradient, times the parameter; or see Decoupled
	Decoupled     bool    // each step multiplies the parameter by 1 - lr·WeightDecay instead
	NoMaster      bool    // no float32 weights beside parameters of a narrow type; see the package's section on them
}

// NAdam is Adam with Nesterov's momentum as in torch.optim.NAdam (Dozat, Incorporating
// Nesterov Momentum into Adam, 2016). For each parameter p with gradient g, at step t from 1 on,
//
//	g += WeightDecay·p
//	µ(t) = Beta1·(1 - 0.96^(t·MomentumDecay)/2)
//	m = Beta1·m + (1-Beta1)·g
//	v = Beta2·v + (1-Beta2)·g²
//	d = (1-µ(t))/(1 - µ(1)·…·µ(t))·g + µ(t+1)/(1 - µ(1)·…·µ(t+1))·m
//	p -= lr·d/(√(v/(1-Beta2^t)) + Eps)
//
// A row-sparse gradient is that of a parameter whose other rows have the gradient 0.
type NAdam struct {
	base
	config   NAdamConfig
	m, v     []*dtensor.Tensor
	products []product // by parameter
}

// A product is µ(1)·…·µ(step). It follows from the step, so it is no state.
type product struct {
	step  int
	value float64
}

// NewNAdam returns an NAdam for params. It throws an error that names the field if the
// configuration makes no sense.
func NewNAdam(params []*dtensor.Tensor, c NAdamConfig) *NAdam {
	const op = "NewNAdam"
	c.Beta1, c.Beta2, c.Eps = cmp.Or(c.Beta1, 0.9), cmp.Or(c.Beta2, 0.999), cmp.Or(c.Eps, 1e-8)
	c.MomentumDecay = cmp.Or(c.MomentumDecay, 4e-3)
	inUnit(op, "Beta1", c.Beta1)
	inUnit(op, "Beta2", c.Beta2)
	atLeastZero(op, "Eps", c.Eps)
	atLeastZero(op, "MomentumDecay", c.MomentumDecay)
	atLeastZero(op, "WeightDecay", c.WeightDecay)
	return &NAdam{base: newBase("NAdam", params, c.NoMaster), config: c, m: states(params), v: states(params),
		products: make([]product, len(params))}
}

// State lists the means, "m" and "v", and the steps.
func (n *NAdam) State() iter.Seq2[string, *dtensor.Tensor] {
	return n.list(kind{"m", n.m}, kind{"v", n.v})
}

// momentum returns µ(step).
func (c *NAdamConfig) momentum(step int) float64 {
	return c.Beta1 * (1 - 0.5*math.Pow(0.96, float64(step)*c.MomentumDecay))
}

// product returns µ(1)·…·µ(step) for parameter i. It goes on from the product of the step before, unless the state was loaded.
func (n *NAdam) product(i, step int) float64 {
	p := &n.products[i]
	if p.step == 0 || p.step > step {
		*p = product{0, 1}
	}
	for p.step < step {
		p.step++
		p.value *= n.config.momentum(p.step)
	}
	return p.value
}

// Step makes one step; see Optimizer.
func (n *NAdam) Step(grads []dtensor.Grad, lr float64) error {
	o := n.config
	return n.step(grads, lr, true, func(c change) {
		now, next, all := o.momentum(c.step), o.momentum(c.step+1), n.product(c.i, c.step)
		ofGrad, ofMean := (1-now)/(1-all), next/(1-all*next)
		bias := 1 - math.Pow(o.Beta2, float64(c.step))
		c.apply(func(p, g *tensor.Tensor, s []*tensor.Tensor) {
			g = withDecay(p, g, lr, o.WeightDecay, o.Decoupled)
			m, v := s[0], s[1]
			average(m, o.Beta1, g)
			average(v, o.Beta2, square(g))
			d := tensor.MulScalar(g, ofGrad)
			tensor.AddScaledTo(d, ofMean, m)
			tensor.AddScaledTo(p, -lr, overRoot(d, tensor.MulScalar(v, 1/bias), o.Eps))
		}, n.m, n.v)
	})
}
