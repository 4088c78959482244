package dtensor

import (
	"math"

	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// slopeOf returns the derivative of an element-wise operator, computed by operators that can be differentiated twice; nil if there
// is none. It is a function of what the operator's gradient reads: the input, or the output where kernel.UnaryRow says so.
func slopeOf(op kernel.UnaryOp) func(t *Tensor) *Tensor {
	slopes := [...]func(t *Tensor) *Tensor{
		kernel.OpAbs:      (*Tensor).Sign,
		kernel.OpExp:      same,
		kernel.OpLog:      (*Tensor).reciprocal,
		kernel.OpSqrt:     func(y *Tensor) *Tensor { return y.Scale(2).reciprocal() },
		kernel.OpRsqrt:    func(y *Tensor) *Tensor { return y.Square().Mul(y).Scale(-0.5) },
		kernel.OpTanh:     func(y *Tensor) *Tensor { return y.Square().from1() },
		kernel.OpSigmoid:  func(y *Tensor) *Tensor { return y.Mul(y.from1()) },
		kernel.OpRelu:     func(y *Tensor) *Tensor { return y.Sign() },
		kernel.OpGelu:     func(x *Tensor) *Tensor { return x.below().Add(x.Mul(x.density())) },
		kernel.OpGeluTanh: geluTanhSlope,
		kernel.OpSilu: func(x *Tensor) *Tensor {
			s := x.Sigmoid()
			return s.Add(x.Mul(s).Mul(s.from1()))
		},
		kernel.OpSquare:     func(x *Tensor) *Tensor { return x.Scale(2) },
		kernel.OpErf:        func(x *Tensor) *Tensor { return x.Square().Neg().Exp().Scale(2 / math.Sqrt(math.Pi)) },
		kernel.OpErfc:       func(x *Tensor) *Tensor { return x.Square().Neg().Exp().Scale(-2 / math.Sqrt(math.Pi)) },
		kernel.OpErfinv:     func(y *Tensor) *Tensor { return y.Square().Exp().Scale(math.Sqrt(math.Pi) / 2) },
		kernel.OpSin:        (*Tensor).Cos,
		kernel.OpCos:        func(x *Tensor) *Tensor { return x.Sin().Neg() },
		kernel.OpTan:        func(y *Tensor) *Tensor { return y.Square().AddScalar(1) },
		kernel.OpAsin:       func(x *Tensor) *Tensor { return x.Square().from1().Rsqrt() },
		kernel.OpAcos:       func(x *Tensor) *Tensor { return x.Square().from1().Rsqrt().Neg() },
		kernel.OpAtan:       func(x *Tensor) *Tensor { return x.Square().AddScalar(1).reciprocal() },
		kernel.OpSinh:       (*Tensor).Cosh,
		kernel.OpCosh:       (*Tensor).Sinh,
		kernel.OpAsinh:      func(x *Tensor) *Tensor { return x.Square().AddScalar(1).Rsqrt() },
		kernel.OpAcosh:      func(x *Tensor) *Tensor { return x.Square().AddScalar(-1).Rsqrt() },
		kernel.OpAtanh:      func(x *Tensor) *Tensor { return x.Square().from1().reciprocal() },
		kernel.OpLog1p:      func(x *Tensor) *Tensor { return x.AddScalar(1).reciprocal() },
		kernel.OpExpm1:      func(y *Tensor) *Tensor { return y.AddScalar(1) },
		kernel.OpExp2:       func(y *Tensor) *Tensor { return y.Scale(math.Ln2) },
		kernel.OpLog2:       func(x *Tensor) *Tensor { return x.Scale(math.Ln2).reciprocal() },
		kernel.OpLog10:      func(x *Tensor) *Tensor { return x.Scale(math.Ln10).reciprocal() },
		kernel.OpLgamma:     (*Tensor).Digamma,
		kernel.OpSoftplus:   (*Tensor).Sigmoid,
		kernel.OpLogSigmoid: func(x *Tensor) *Tensor { return x.Neg().Sigmoid() },
		kernel.OpMish: func(x *Tensor) *Tensor {
			t := x.Softplus().Tanh()
			return t.Add(x.Mul(x.Sigmoid()).Mul(t.Square().from1()))
		},
		kernel.OpHardsigmoid: hardSlope,
		kernel.OpHardswish:   func(x *Tensor) *Tensor { return x.Hardsigmoid().Add(x.Mul(hardSlope(x))) },
		kernel.OpELU:         func(x *Tensor) *Tensor { return x.Clamp(math.Inf(-1), 0).Exp() },
	}
	if int(op) < len(slopes) {
		return slopes[op]
	}
	return nil
}

func same(t *Tensor) *Tensor { return t }

// reciprocal returns 1/t.
func (t *Tensor) reciprocal() *Tensor {
	return filled(t.spec.mesh.shapeSpec("reciprocal", nil), t.DType(), 1).Div(t)
}

// from1 returns 1 - t.
func (t *Tensor) from1() *Tensor { return t.Neg().AddScalar(1) }

// below and density are the distribution function of the standard normal distribution and its density.
func (t *Tensor) below() *Tensor { return t.Scale(1 / math.Sqrt2).Erf().AddScalar(1).Scale(0.5) }

func (t *Tensor) density() *Tensor {
	return t.Square().Scale(-0.5).Exp().Scale(1 / math.Sqrt(2*math.Pi))
}

// geluTanhSlope is ½(1 + t) + ½x(1 - t²)·u', with t = tanh u and u = √(2/π)·(x + 0.044715·x³).
func geluTanhSlope(x *Tensor) *Tensor {
	const c, cubic = math.Sqrt2 / 1.77245385090551602729816748334, 0.044715
	square := x.Square()
	t := x.Mul(square.Scale(cubic).AddScalar(1)).Scale(c).Tanh()
	inner := square.Scale(3 * cubic).AddScalar(1).Scale(c)
	return t.AddScalar(1).Add(x.Mul(t.Square().from1()).Mul(inner)).Scale(0.5)
}

// hardSlope is 1/6 from -3 to 3, and 0 beyond.
func hardSlope(x *Tensor) *Tensor {
	sixth := x.Detach().Scale(0).AddScalar(1. / 6)
	return sixth.keepWhere(x.CompareScalar(kernel.OpLt, -3), false).keepWhere(x.CompareScalar(kernel.OpGt, 3), false)
}
