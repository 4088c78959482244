package optim

import (
	"cmp"
	"iter"
	"math"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// An ASGDConfig sets up ASGD. The zero value has torch's constants.
type ASGDConfig struct {
	Lambda      float64 // by how much the rate and the parameters shrink; 0 stands for 1e-4
	Alpha       float64 // power by which the rate shrinks; 0 stands for 0.75
	Start       int     // steps after which averaging begins; 0 stands for 1e6
	WeightDecay float64 // added to the gradient, times the parameter
	NoMaster    bool    // no float32 weights beside parameters of a narrow type; see the package's section on them
}

// ASGD is averaged stochastic gradient descent as in torch.optim.ASGD (Polyak and Juditsky,
// Acceleration of Stochastic Approximation by Averaging, 1992). For each parameter p with
// gradient g, at step t from 1 on,
//
//	η = lr/(1 + Lambda·lr·(t-1))^Alpha
//	g += WeightDecay·p
//	p -= Lambda·η·p + η·g
//	a += (p - a)/max(1, t-1-Start)
//
// The averages a are in its State. EMA gives later steps more weight. A row-sparse gradient is
// that of a parameter whose other rows have the gradient 0.
type ASGD struct {
	base
	config   ASGDConfig
	averages []*dtensor.Tensor
}

// NewASGD returns an ASGD for params. It throws an error that names the field if the
// configuration makes no sense.
func NewASGD(params []*dtensor.Tensor, c ASGDConfig) *ASGD {
	const op = "NewASGD"
	c.Lambda, c.Alpha, c.Start = cmp.Or(c.Lambda, 1e-4), cmp.Or(c.Alpha, 0.75), cmp.Or(c.Start, 1e6)
	atLeastZero(op, "Lambda", c.Lambda)
	atLeastZero(op, "Alpha", c.Alpha)
	atLeastZero(op, "Start", float64(c.Start))
	atLeastZero(op, "WeightDecay", c.WeightDecay)
	return &ASGD{base: newBase("ASGD", params, c.NoMaster), config: c, averages: states(params)}
}

// State lists the averages of the parameters, "average", and the steps.
func (a *ASGD) State() iter.Seq2[string, *dtensor.Tensor] { return a.list(kind{"average", a.averages}) }

// Step makes one step; see Optimizer.
func (a *ASGD) Step(grads []dtensor.Grad, lr float64) error {
	o := a.config
	return a.step(grads, lr, true, func(c change) {
		before := float64(c.step - 1)
		rate := lr / math.Pow(1+o.Lambda*lr*before, o.Alpha)
		weight := 1 / max(1, before-float64(o.Start))
		c.apply(func(p, g *tensor.Tensor, s []*tensor.Tensor) {
			g = decayed(g, p, o.WeightDecay)
			tensor.ScaleTo(p, 1-o.Lambda*rate)
			tensor.AddScaledTo(p, -rate, g)
			if weight == 1 {
				tensor.Copy(s[0], p)
				return
			}
			tensor.AddScaledTo(s[0], weight, tensor.Binary(kernel.OpSub, p, s[0]))
		}, a.averages)
	})
}
