package optim

import (
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
	"iter"
)

// An AdamWConfig sets up AdamW. The zero value has the usual constants and no
// weight decay.
type AdamWConfig struct {
	Beta1       float64 // decay of the mean of gradients; 0 stands for 0.9
	Beta2       float64 // decay of the mean of squares; 0 stands for 0.999
	Eps         float64 // added to the root; 0 stands for 1e-8
	WeightDecay float64 // decoupled: each step multiplies the parameter by 1 - lr·WeightDecay
	Coupled     bool    // the decay of torch.optim.Adam: WeightDecay times the parameter is added to the gradient instead
}

// AdamW is Adam with decoupled weight decay, as in torch.optim.AdamW (Loshchilov
// and Hutter, arXiv 1711.05101). In step t, counted from 1, for each parameter p
// with gradient g,
//
//	p *= 1 - lr·WeightDecay
//	m = Beta1·m + (1-Beta1)·g
//	v = Beta2·v + (1-Beta2)·g²
//	p -= lr/(1-Beta1ᵗ) · m / (√v/√(1-Beta2ᵗ) + Eps)
//
// With Coupled the first line is g += WeightDecay·p, and this is torch.optim.Adam.
//
// A row-sparse gradient is that of a parameter whose other rows have the
// gradient 0: those rows decay and follow their moments as they do with a dense
// gradient, so the result is the same. SparseAdam leaves them alone.
type AdamW struct {
	base
	config AdamWConfig
	m, v   []*dtensor.Tensor
}

// NewAdamW returns an AdamW for params. It throws an error that names the field
// if the configuration makes no sense.
func NewAdamW(params []*dtensor.Tensor, c AdamWConfig) *AdamW {
	c.Beta1, c.Beta2, c.Eps = adamDefaults("NewAdamW", c.Beta1, c.Beta2, c.Eps)
	atLeastZero("NewAdamW", "WeightDecay", c.WeightDecay)
	return &AdamW{base: newBase("AdamW", params), config: c, m: states(params), v: states(params)}
}

// adamDefaults fills in what is 0 and checks the rest.
func adamDefaults(op string, beta1, beta2, eps float64) (float64, float64, float64) {
	if beta1 == 0 {
		beta1 = 0.9
	}
	if beta2 == 0 {
		beta2 = 0.999
	}
	if eps == 0 {
		eps = 1e-8
	}
	inUnit(op, "Beta1", beta1)
	inUnit(op, "Beta2", beta2)
	atLeastZero(op, "Eps", eps)
	return beta1, beta2, eps
}

// State lists the moments, "m" and "v", and the steps.
func (a *AdamW) State() iter.Seq2[string, *dtensor.Tensor] {
	return a.list(kind{"m", a.m}, kind{"v", a.v})
}

// Step makes one step; see Optimizer.
func (a *AdamW) Step(grads []dtensor.Grad, lr float64) error {
	o := tensor.Adam{LR: lr, Beta1: a.config.Beta1, Beta2: a.config.Beta2, Eps: a.config.Eps, WeightDecay: a.config.WeightDecay, Coupled: a.config.Coupled}
	return a.step(grads, func(i, step int, p *dtensor.Tensor, g dtensor.Grad) {
		param, m, v := p.Local(), a.m[i].Local(), a.v[i].Local()
		if rows, sparse := g.Rows(); !sparse {
			o.Step(param, g.Dense().Local(), m, v, step)
		} else if dense := denseOf(param, rowsOf(p, rows)); dense != nil {
			o.Step(param, dense, m, v, step)
			dense.Free()
		} else {
			widely(param, rowsOf(p, rows), func(param *tensor.Tensor, g tensor.Rows) {
				pick(p.DType(), adamEveryRow[float32], adamEveryRow[float64])(param, m, v, o, step, g)
			})
		}
	})
}
