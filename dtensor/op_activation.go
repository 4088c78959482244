package dtensor

import (
	"math"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// The activations here have the layouts of Exp, except for Mish and Hardswish, which decrease somewhere and have those of Abs. They
// throw a *LayoutError for integers.

// ELU returns x where it is above 0, and alpha·(eˣ-1) elsewhere.
func (x *Tensor) ELU(alpha float64) *Tensor {
	if alpha == 1 {
		return x.activation(kernel.OpELU)
	}
	return x.inWide("ELU", func(x *Tensor) *Tensor { return unary(kernel.OpELU, x).LeakyReLU(alpha) })
}

// LeakyReLU returns x where it is above 0, and slope·x elsewhere.
func (x *Tensor) LeakyReLU(slope float64) *Tensor {
	const op = "LeakyReLU"
	x.wantFloat(op)
	law := layout.Opaque
	if slope >= 0 && slope <= math.MaxFloat64 {
		law = layout.Monotone
	}
	out := single(op, law, x, x.DType(), func(x *tensor.Tensor) *tensor.Tensor { return tensor.Leaky(x, x, slope) })
	if x.tracked() {
		in := x.Detach()
		out.recordTwice(op, func(gy *Tensor) { x.accumulate(gy.leaky(in, slope)) })
	}
	return out
}

// leaky returns t where x is above 0, and slope·t elsewhere.
func (t *Tensor) leaky(x *Tensor, slope float64) *Tensor {
	const op = "LeakyReLUGrad"
	out := inPairs(op, t, x, func(t, x *tensor.Tensor) *tensor.Tensor { return tensor.Leaky(t, x, slope) })
	if t.tracked() {
		out.recordTwice(op, func(gy *Tensor) { t.accumulate(gy.leaky(x, slope)) })
	}
	return out
}

// Softplus returns ln(1+eˣ).
func (x *Tensor) Softplus() *Tensor { return x.activation(kernel.OpSoftplus) }

// LogSigmoid returns the logarithm of Sigmoid, -ln(1+e⁻ˣ).
func (x *Tensor) LogSigmoid() *Tensor { return x.activation(kernel.OpLogSigmoid) }

// Mish returns x·tanh(ln(1+eˣ)).
func (x *Tensor) Mish() *Tensor { return x.activation(kernel.OpMish) }

// Hardsigmoid returns min(max(x+3, 0), 6)/6.
func (x *Tensor) Hardsigmoid() *Tensor { return x.activation(kernel.OpHardsigmoid) }

// Hardswish returns x·Hardsigmoid(x).
func (x *Tensor) Hardswish() *Tensor { return x.activation(kernel.OpHardswish) }

func (x *Tensor) activation(op kernel.UnaryOp) *Tensor {
	x.wantFloat(op.String())
	return unary(op, x)
}

// inWide returns f of x, computed in the type in which x is computed with.
func (x *Tensor) inWide(op string, f func(x *Tensor) *Tensor) *Tensor {
	defer x.spec.mesh.Span(op).End()
	x.wantFloat(op)
	return f(x.widen()).Cast(x.DType())
}
