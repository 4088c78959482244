package optim

import (
	"cmp"
	"iter"
	"math"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// An AdamWConfig sets up AdamW. The zero value has the usual constants and no
// weight decay.
type AdamWConfig struct {
	Beta1       float64 // decay of the mean of gradients; 0 stands for 0.9
	Beta2       float64 // decay of the mean of squares; 0 stands for 0.999
	Eps         float64 // added to the root; 0 stands for 1e-8
	WeightDecay float64 // decoupled: each step multiplies the parameter by 1 - lr·WeightDecay
	AMSGrad     bool    // divide by the root of the largest mean of squares so far; one more state
	Coupled     bool    // the decay of torch.optim.Adam: WeightDecay times the parameter is added to the gradient instead
	NoMaster    bool    // no float32 weights beside parameters of a narrow type; see the package's section on them
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
// With Coupled the first line is g += WeightDecay·p, and this is torch.optim.Adam. With
// AMSGrad the largest v so far stands for v in the last line (Reddi et al., On the
// Convergence of Adam and Beyond, ICLR 2018).
//
// A row-sparse gradient is that of a parameter whose other rows have the
// gradient 0: those rows decay and follow their moments as they do with a dense
// gradient, so the result is the same. SparseAdam leaves them alone.
type AdamW struct {
	base
	config AdamWConfig
	m, v   []*dtensor.Tensor
	most   []*dtensor.Tensor // of AMSGrad: the largest v so far; else nil
}

// NewAdamW returns an AdamW for params. It throws an error that names the field
// if the configuration makes no sense.
func NewAdamW(params []*dtensor.Tensor, c AdamWConfig) *AdamW {
	c.Beta1, c.Beta2, c.Eps = adamDefaults("NewAdamW", c.Beta1, c.Beta2, c.Eps)
	atLeastZero("NewAdamW", "WeightDecay", c.WeightDecay)
	a := &AdamW{base: newBase("AdamW", params, c.NoMaster), config: c, m: states(params), v: states(params)}
	if c.AMSGrad {
		a.most = states(params)
	}
	return a
}

// adamDefaults sets the fields that are 0 to their defaults and checks the others.
func adamDefaults(op string, beta1, beta2, eps float64) (float64, float64, float64) {
	beta1, beta2, eps = cmp.Or(beta1, 0.9), cmp.Or(beta2, 0.999), cmp.Or(eps, 1e-8)
	inUnit(op, "Beta1", beta1)
	inUnit(op, "Beta2", beta2)
	atLeastZero(op, "Eps", eps)
	return beta1, beta2, eps
}

// State lists the moments, "m" and "v", with AMSGrad the largest "vmax", and the steps.
func (a *AdamW) State() iter.Seq2[string, *dtensor.Tensor] {
	return a.list(kind{"m", a.m}, kind{"v", a.v}, kind{"vmax", a.most})
}

// Step makes one step; see Optimizer.
func (a *AdamW) Step(grads []dtensor.Grad, lr float64) error {
	o := tensor.Adam{LR: lr, Beta1: a.config.Beta1, Beta2: a.config.Beta2, Eps: a.config.Eps, WeightDecay: a.config.WeightDecay,
		Coupled: a.config.Coupled}
	return a.step(grads, lr, true, func(c change) {
		m, v := a.m[c.i].Local(), a.v[c.i].Local()
		if a.most != nil {
			c.apply(a.amsgrad(lr, c.step), a.m, a.v, a.most)
		} else if c.dense != nil {
			o.Step(c.local, c.dense, m, v, c.step)
		} else if dense := denseOf(c.local, c.rows); dense != nil {
			o.Step(c.local, dense, m, v, c.step)
			dense.Free()
		} else {
			dtype.Pick(c.local.DType(), adamEveryRow[float32], adamEveryRow[float64])(c.local, m, v, o, c.step, c.rows)
		}
	})
}

// amsgrad returns the rule of a step with AMSGrad.
func (a *AdamW) amsgrad(lr float64, step int) rule {
	o := a.config
	size := lr / (1 - math.Pow(o.Beta1, float64(step)))
	root := math.Sqrt(1 - math.Pow(o.Beta2, float64(step)))
	return func(p, g *tensor.Tensor, s []*tensor.Tensor) {
		m, v, most := s[0], s[1], s[2]
		if o.Coupled {
			g = decayed(g, p, o.WeightDecay)
		} else {
			tensor.ScaleTo(p, 1-lr*o.WeightDecay)
		}
		average(m, o.Beta1, g)
		average(v, o.Beta2, square(g))
		tensor.BinaryTo(most, kernel.OpMaximum, most, v)
		// m/(√most/root + Eps) is root·m/(√most + root·Eps).
		tensor.AddScaledTo(p, -size*root, overRoot(m, most, root*o.Eps))
	}
}
