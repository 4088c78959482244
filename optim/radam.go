package optim

import (
	"cmp"
	"iter"
	"math"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
)

// An RAdamConfig sets up RAdam. The zero value has the paper's constants.
type RAdamConfig struct {
	Beta1       float64 // decay of the mean of gradients; 0 stands for 0.9
	Beta2       float64 // decay of the mean of squares; 0 stands for 0.999
	Eps         float64 // added to the root; 0 stands for 1e-8
	WeightDecay float64 // added to the gradient, times the parameter; or see Decoupled
	Decoupled   bool    // each step multiplies the parameter by 1 - lr·WeightDecay instead
	NoMaster    bool    // no float32 weights beside parameters of a narrow type; see the package's section on them
}

// RAdam is rectified Adam as in torch.optim.RAdam (Liu et al., On the Variance of the
// Adaptive Learning Rate and Beyond, arXiv 1908.03265, algorithm 2). Its first steps, in which
// the mean of squares says little, are those of SGD with momentum, so it needs no warm-up.
// For each parameter p with gradient g, at step t from 1 on,
//
//	g += WeightDecay·p
//	m = Beta1·m + (1-Beta1)·g
//	v = Beta2·v + (1-Beta2)·g²
//	p -= lr/(1-Beta1^t)·m                                 while r(t) is no number
//	p -= lr/(1-Beta1^t)·r(t)·√(1-Beta2^t)·m/(√v + Eps)    then
//
// with ρ = 2/(1-Beta2) - 1, ρ(t) = ρ - 2t·Beta2^t/(1-Beta2^t), and, from ρ(t) > 5 on,
// r(t) = √((ρ(t)-4)(ρ(t)-2)ρ/((ρ-4)(ρ-2)ρ(t))). A row-sparse gradient is that of a parameter
// whose other rows have the gradient 0.
type RAdam struct {
	base
	config RAdamConfig
	m, v   []*dtensor.Tensor
}

// NewRAdam returns an RAdam for params. It throws an error that names the field if the
// configuration makes no sense.
func NewRAdam(params []*dtensor.Tensor, c RAdamConfig) *RAdam {
	const op = "NewRAdam"
	c.Beta1, c.Beta2, c.Eps = cmp.Or(c.Beta1, 0.9), cmp.Or(c.Beta2, 0.999), cmp.Or(c.Eps, 1e-8)
	inUnit(op, "Beta1", c.Beta1)
	inUnit(op, "Beta2", c.Beta2)
	atLeastZero(op, "Eps", c.Eps)
	atLeastZero(op, "WeightDecay", c.WeightDecay)
	return &RAdam{base: newBase("RAdam", params, c.NoMaster), config: c, m: states(params), v: states(params)}
}

// State lists the means, "m" and "v", and the steps.
func (r *RAdam) State() iter.Seq2[string, *dtensor.Tensor] {
	return r.list(kind{"m", r.m}, kind{"v", r.v})
}

// rectified returns r(step)·√(1-Beta2^step); ok is false if there is none yet.
func (c *RAdamConfig) rectified(step int) (r float64, ok bool) {
	power := math.Pow(c.Beta2, float64(step))
	most := 2/(1-c.Beta2) - 1
	now := most - 2*float64(step)*power/(1-power)
	return math.Sqrt((now - 4) * (now - 2) * most / ((most - 4) * (most - 2) * now) * (1 - power)), now > 5
}

// Step makes one step; see Optimizer.
func (r *RAdam) Step(grads []dtensor.Grad, lr float64) error {
	o := r.config
	return r.step(grads, lr, true, func(c change) {
		rate := lr / (1 - math.Pow(o.Beta1, float64(c.step)))
		factor, adaptive := o.rectified(c.step)
		c.apply(func(p, g *tensor.Tensor, s []*tensor.Tensor) {
			g = withDecay(p, g, lr, o.WeightDecay, o.Decoupled)
			m, v := s[0], s[1]
			average(m, o.Beta1, g)
			average(v, o.Beta2, square(g))
			if adaptive {
				tensor.AddScaledTo(p, -rate*factor, overRoot(m, v, o.Eps))
			} else {
				tensor.AddScaledTo(p, -rate, m)
			}
		}, r.m, r.v)
	})
}
