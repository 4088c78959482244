package dtensor

import (
	"math"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// The activations here are made of other operators, and have their layouts. What is narrow is rounded once, at the end. They
// throw a *LayoutError for integers.

// ELU returns x where it is above 0, and alpha·(eˣ-1) elsewhere.
func (x *Tensor) ELU(alpha float64) *Tensor {
	return x.inWide("ELU", func(x *Tensor) *Tensor {
		in := x.Detach()
		low := in.Clamp(math.Inf(-1), 0)
		less := low.Scale(0.5).Tanh().Mul(low.Exp().AddScalar(1)) // eˣ-1, also where eˣ rounds to 1
		out := in.Relu().Add(less.Scale(alpha))
		if x.tracked() {
			out.recordTwice("ELU", func(gy *Tensor) {
				low := low
				if gy.again() {
					low = x.Clamp(math.Inf(-1), 0)
				}
				x.accumulate(in.CompareScalar(kernel.OpGt, 0).Where(gy, gy.Mul(low.Exp().Scale(alpha))))
			})
		}
		return out
	})
}

// LeakyReLU returns x where it is above 0, and slope·x elsewhere.
func (x *Tensor) LeakyReLU(slope float64) *Tensor {
	return x.CompareScalar(kernel.OpGt, 0).Where(x, x.Scale(slope))
}

// Softplus returns ln(1+eˣ).
func (x *Tensor) Softplus() *Tensor {
	return x.inWide("Softplus", func(x *Tensor) *Tensor {
		out := single("Softplus", layout.Monotone, x, x.DType(), softplus)
		if x.tracked() {
			out.recordTwice("Softplus", func(gy *Tensor) { x.accumulate(gy.Mul(x.Sigmoid())) })
		}
		return out
	})
}

// softplus returns max(x, 0) + ln(1+u) with u = e^-|x|. The sum w = 1+u is rounded: ln w is that of w-1 and not of u, and is
// put right by u/(w-1).
func softplus(x *tensor.Tensor) *tensor.Tensor {
	u := tensor.Unary(kernel.OpExp, tensor.Unary(kernel.OpNeg, tensor.Unary(kernel.OpAbs, x)))
	w := tensor.AddScalar(u, 1)
	less := tensor.AddScalar(w, -1)
	log := tensor.Binary(kernel.OpDiv, tensor.Binary(kernel.OpMul, tensor.Unary(kernel.OpLog, w), u), less)
	log = tensor.Where(tensor.CompareScalar(kernel.OpEq, less, 0), u, log)
	return tensor.Binary(kernel.OpAdd, tensor.Unary(kernel.OpRelu, x), log)
}

// LogSigmoid returns the logarithm of Sigmoid, -ln(1+e⁻ˣ).
func (x *Tensor) LogSigmoid() *Tensor { return x.Neg().Softplus().Neg() }

// Mish returns x·tanh(ln(1+eˣ)).
func (x *Tensor) Mish() *Tensor {
	return x.inWide("Mish", func(x *Tensor) *Tensor { return x.Mul(x.Softplus().Tanh()) })
}

// Hardsigmoid returns min(max(x+3, 0), 6)/6.
func (x *Tensor) Hardsigmoid() *Tensor {
	return x.inWide("Hardsigmoid", func(x *Tensor) *Tensor { return x.AddScalar(3).Clamp(0, 6).divide(6) })
}

// Hardswish returns x·Hardsigmoid(x).
func (x *Tensor) Hardswish() *Tensor {
	return x.inWide("Hardswish", func(x *Tensor) *Tensor { return x.Mul(x.AddScalar(3).Clamp(0, 6)).divide(6) })
}

// inWide returns f of x, computed in the type in which x is computed with.
func (x *Tensor) inWide(op string, f func(x *Tensor) *Tensor) *Tensor {
	defer x.spec.mesh.Span(op).End()
	if !x.DType().Float() {
		refuse(op, "the input holds "+x.DType().String(), "Cast it to a floating-point type", operand("input", x))
	}
	return f(x.widen()).Cast(x.DType())
}
