package optim

import (
	"iter"
	"math"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
)

// A SparseAdamConfig sets up SparseAdam. The zero value has the usual constants.
type SparseAdamConfig struct {
	Beta1       float64 // 0 stands for 0.9
	Beta2       float64 // 0 stands for 0.999
	Eps         float64 // 0 stands for 1e-8
	WeightDecay float64 // a step takes lr·WeightDecay of the rows that the gradient has
	NoMaster    bool    // no float32 weights beside parameters of a narrow type; see the package's section on them
}

// SparseAdam is the lazy Adam of torch.optim.SparseAdam: a step changes only the
// rows that the gradient has, and their moments. In step t, counted from 1, for
// each row p of the gradient g,
//
//	m += (1-Beta1)·(g - m)
//	v += (1-Beta2)·(g² - v)
//	p -= lr·WeightDecay·p + lr·√(1-Beta2ᵗ)/(1-Beta1ᵗ) · m / (√v + Eps)
//
// A row that is looked up rarely therefore keeps its momentum in between; AdamW gives
// the result of a dense gradient. SparseAdam takes a dense gradient as one that has every
// row.
type SparseAdam struct {
	base
	config SparseAdamConfig
	m, v   []*dtensor.Tensor
}

// NewSparseAdam returns a SparseAdam for params. It throws an error that names
// the field if the configuration makes no sense.
func NewSparseAdam(params []*dtensor.Tensor, c SparseAdamConfig) *SparseAdam {
	c.Beta1, c.Beta2, c.Eps = adamDefaults("NewSparseAdam", c.Beta1, c.Beta2, c.Eps)
	atLeastZero("NewSparseAdam", "WeightDecay", c.WeightDecay)
	return &SparseAdam{base: newBase("SparseAdam", params, c.NoMaster), config: c, m: states(params), v: states(params)}
}

// State lists the moments, "m" and "v", and the steps.
func (a *SparseAdam) State() iter.Seq2[string, *dtensor.Tensor] {
	return a.list(kind{"m", a.m}, kind{"v", a.v})
}

// Step makes one step; see Optimizer.
func (a *SparseAdam) Step(grads []dtensor.Grad, lr float64) error {
	o := tensor.Adam{LR: lr, Beta1: a.config.Beta1, Beta2: a.config.Beta2, Eps: a.config.Eps, WeightDecay: a.config.WeightDecay}
	return a.step(grads, lr, false, func(c change) {
		// Adam has √v/√(1-Beta2ᵗ) + Eps where SparseAdam has (√v + Eps)/√(1-Beta2ᵗ).
		o := o
		o.Eps /= math.Sqrt(1 - math.Pow(o.Beta2, float64(c.step)))
		m, v := a.m[c.i].Local(), a.v[c.i].Local()
		if c.dense != nil {
			o.Step(c.local, c.dense, m, v, c.step)
			return
		}
		if o.WeightDecay != 0 {
			rows := tensor.TakeRows(c.local, c.rows.Index, 0)
			tensor.ScaleTo(rows, 1-lr*o.WeightDecay)
			tensor.PutRows(c.local, tensor.Rows{Index: c.rows.Index, Values: rows})
		}
		o.StepRows(c.local, c.rows, m, v, c.step)
	})
}
