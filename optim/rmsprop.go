package optim

import (
	"cmp"
	"iter"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// An RMSpropConfig sets up RMSprop. The zero value has the usual constants and no
// momentum.
type RMSpropConfig struct {
	Alpha       float64 // decay of the mean of squares; 0 stands for 0.99
	Eps         float64 // added to the root; 0 stands for 1e-8
	Momentum    float64 // 0: none, and no memory for it
	Centered    bool    // divide by the variance of the gradients instead of their mean square
	WeightDecay float64 // added to the gradient, times the parameter
	NoMaster    bool    // no float32 weights beside parameters of a narrow type; see the package's section on them
}

// RMSprop is RMSprop as in torch.optim.RMSprop (Hinton's lectures; centered: Graves,
// arXiv 1308.0850). For each parameter p with gradient g,
//
//	g += WeightDecay·p
//	v = Alpha·v + (1-Alpha)·g²
//	s = v, or with Centered v - a² for a = Alpha·a + (1-Alpha)·g
//	b = Momentum·b + g/(√s + Eps)
//	p -= lr·b
//
// A row-sparse gradient is that of a parameter whose other rows have the gradient 0.
type RMSprop struct {
	base
	config              RMSpropConfig
	squares, means, buf []*dtensor.Tensor // means and buf are nil if they are not needed
}

// NewRMSprop returns an RMSprop for params. It throws an error that names the field if
// the configuration makes no sense.
func NewRMSprop(params []*dtensor.Tensor, c RMSpropConfig) *RMSprop {
	const op = "NewRMSprop"
	c.Alpha, c.Eps = cmp.Or(c.Alpha, 0.99), cmp.Or(c.Eps, 1e-8)
	inUnit(op, "Alpha", c.Alpha)
	atLeastZero(op, "Eps", c.Eps)
	atLeastZero(op, "Momentum", c.Momentum)
	atLeastZero(op, "WeightDecay", c.WeightDecay)
	r := &RMSprop{base: newBase("RMSprop", params, c.NoMaster), config: c, squares: states(params)}
	if c.Centered {
		r.means = states(params)
	}
	if c.Momentum != 0 {
		r.buf = states(params)
	}
	return r
}

// State lists the means of squares, "v", those of gradients, "mean", the "momentum", and
// the steps.
func (r *RMSprop) State() iter.Seq2[string, *dtensor.Tensor] {
	return r.list(kind{"v", r.squares}, kind{"mean", r.means}, kind{"momentum", r.buf})
}

// Step makes one step; see Optimizer.
func (r *RMSprop) Step(grads []dtensor.Grad, lr float64) error {
	o := r.config
	state := [][]*dtensor.Tensor{r.squares}
	for _, s := range [][]*dtensor.Tensor{r.means, r.buf} {
		if s != nil {
			state = append(state, s)
		}
	}
	return r.step(grads, lr, true, func(c change) {
		c.apply(func(p, g *tensor.Tensor, s []*tensor.Tensor) {
			g = decayed(g, p, o.WeightDecay)
			v := s[0]
			average(v, o.Alpha, square(g))
			spread := v
			if o.Centered {
				average(s[1], o.Alpha, g)
				spread = tensor.Binary(kernel.OpSub, v, square(s[1]))
			}
			move := overRoot(g, spread, o.Eps)
			if o.Momentum != 0 {
				buf := s[len(s)-1]
				tensor.ScaleTo(buf, o.Momentum)
				tensor.AddTo(buf, move)
				move = buf
			}
			tensor.AddScaledTo(p, -lr, move)
		}, state...)
	})
}
