package loss

import (
	"cmp"
	"fmt"
	"math"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// The losses of this file are formulas over element-wise operators, as those of regression.go are.

// PoissonNLLOptions are the settings of PoissonNLL.
type PoissonNLLOptions struct {
	Reduction Reduction
	Rates     bool // x holds the rates themselves, above 0, not their logarithms
	Full      bool // adds Stirling's approximation of ln(y!), which no gradient of x depends on, where y is above 1
}

// PoissonNLL returns eˣ - y·x for each element, as torch's poisson_nll_loss: up to ln(y!) the negative logarithm of the
// probability of y events where eˣ are expected. With Rates it is x - y·ln(x + 1e-8).
func PoissonNLL(x, y *dtensor.Tensor, o PoissonNLLOptions) *dtensor.Tensor {
	x, y = operands("PoissonNLL", o.Reduction, x, y)
	var losses *dtensor.Tensor
	if o.Rates {
		losses = x.Sub(y.Mul(x.AddScalar(1e-8).Log()))
	} else {
		losses = x.Exp().Sub(y.Mul(x))
	}
	if o.Full {
		few := y.Detach().CompareScalar(kernel.OpLe, 1)
		many := y.MaskedFill(few, 1)
		stirling := many.Mul(many.Log()).Sub(many).Add(many.Scale(2 * math.Pi).Log().Scale(0.5))
		losses = losses.Add(stirling.MaskedFill(few, 0))
	}
	return reduced(losses, o.Reduction)
}

// GaussianNLLOptions are the settings of GaussianNLL.
type GaussianNLLOptions struct {
	Reduction Reduction
	Full      bool    // adds ln(2π)/2
	Eps       float64 // the least variance; 0 stands for 1e-6
}

// GaussianNLL returns (ln v + (x - y)²/v)/2 for each element, as torch's gaussian_nll_loss: up to ln(2π)/2 the negative
// logarithm of the density at y of the normal distribution with mean x and variance v. A variance below Eps counts as Eps,
// and its gradient is that there, as in PyTorch.
func GaussianNLL(x, y, variance *dtensor.Tensor, o GaussianNLLOptions) *dtensor.Tensor {
	const op = "GaussianNLL"
	eps := cmp.Or(o.Eps, 1e-6)
	if !(eps > 0) {
		refuse(op, fmt.Sprintf("Eps is %v; it must be above 0", eps))
	}
	_, variance = operands(op, o.Reduction, x, variance)
	x, y = operands(op, o.Reduction, x, y)
	v := variance.Detach()
	v = variance.Add(v.Clamp(eps, math.Inf(1)).Sub(v))
	losses := v.Log().Add(x.Sub(y).Square().Div(v)).Scale(0.5)
	if o.Full {
		losses = losses.AddScalar(math.Log(2*math.Pi) / 2)
	}
	return reduced(losses, o.Reduction)
}
