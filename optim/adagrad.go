package optim

import (
	"cmp"
	"iter"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/tensor"
)

// An AdagradConfig sets up Adagrad. The zero value has the usual constants.
type AdagradConfig struct {
	Eps         float64 // added to the root; 0 stands for 1e-10
	Initial     float64 // the initial sums of squares
	RateDecay   float64 // step t, counted from 1, has the rate lr/(1 + (t-1)·RateDecay)
	WeightDecay float64 // added to the gradient, times the parameter
	NoMaster    bool    // no float32 weights beside parameters of a narrow type; see the package's section on them
}

// Adagrad divides by the root of the sum of all squares so far, as torch.optim.Adagrad
// (Duchi, Hazan and Singer, JMLR 12, 2011). For each parameter p with gradient g,
//
//	g += WeightDecay·p
//	s += g²
//	p -= lr/(1 + (t-1)·RateDecay) · g/(√s + Eps)
//
// An element whose gradient is 0 does not move. So without weight decay a row-sparse
// gradient gives exactly the result of a dense one, and only its rows are touched.
// RowAdagrad has one sum for each row.
type Adagrad struct {
	base
	config AdagradConfig
	sums   []*dtensor.Tensor
}

// NewAdagrad returns an Adagrad for params. It throws an error that names the field if
// the configuration makes no sense.
func NewAdagrad(params []*dtensor.Tensor, c AdagradConfig) *Adagrad {
	const op = "NewAdagrad"
	c.Eps = cmp.Or(c.Eps, 1e-10)
	atLeastZero(op, "Eps", c.Eps)
	atLeastZero(op, "Initial", c.Initial)
	atLeastZero(op, "RateDecay", c.RateDecay)
	atLeastZero(op, "WeightDecay", c.WeightDecay)
	a := &Adagrad{base: newBase("Adagrad", params, c.NoMaster), config: c, sums: states(params)}
	for _, s := range a.sums {
		tensor.Fill(s.Local(), c.Initial)
	}
	return a
}

// State lists the sums of squares, "sum", and the steps.
func (a *Adagrad) State() iter.Seq2[string, *dtensor.Tensor] { return a.list(kind{"sum", a.sums}) }

// Step makes one step; see Optimizer.
func (a *Adagrad) Step(grads []dtensor.Grad, lr float64) error {
	o := a.config
	return a.step(grads, lr, o.WeightDecay != 0, func(c change) {
		rate := lr / (1 + float64(c.step-1)*o.RateDecay)
		rule := func(p, g *tensor.Tensor, s []*tensor.Tensor) {
			g = decayed(g, p, o.WeightDecay)
			tensor.AddTo(s[0], square(g))
			tensor.AddScaledTo(p, -rate, overRoot(g, s[0], o.Eps))
		}
		sums := a.sums[c.i].Local()
		switch {
		case o.WeightDecay != 0:
			c.apply(rule, a.sums)
		case c.dense == nil && tensor.OnHost(c.local.Device()) && !c.local.DType().Narrow():
			dtype.Pick(sums.DType(), adagradRows[float32], adagradRows[float64])(c.local, sums, c.rows, rate, o.Eps)
		default:
			c.applyRows(rule, a.sums)
		}
	})
}
