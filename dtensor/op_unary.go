package dtensor

import (
	"fmt"
	"math"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// The element-wise operators of one tensor.
//
//	x                   result
//	S(i)                S(i)
//	R                   R
//	P(sum), P(avg)      the same      Neg, Scale by a finite number
//	P(min), P(max)      the same      what never decreases: AddScalar, Clamp, Exp, Tanh, Sigmoid, Relu, Erf,
//	                                  Cast between floating-point types; Neg makes one of the other.
//	                                  Of integers, whose sums wrap, only Clamp and Relu
//	P(min)              the same      Log, Sqrt: other parts of a P(max) may be negative
//	MaskP               MaskP         Neg, Scale, Cast between floating-point types
//	other P             R, after a reduction
//
// Each gradient is dx = dy·f'(x), with dy in any layout.

// Neg returns -x.
func (x *Tensor) Neg() *Tensor { return unary(kernel.OpNeg, x) }

// Abs returns |x|; its gradient at 0 is 0.
func (x *Tensor) Abs() *Tensor { return unary(kernel.OpAbs, x) }

// Exp returns eˣ.
func (x *Tensor) Exp() *Tensor { return unary(kernel.OpExp, x) }

// Log returns the natural logarithm, NaN of a negative number.
func (x *Tensor) Log() *Tensor { return unary(kernel.OpLog, x) }

// Sqrt returns √x, NaN of a negative number.
func (x *Tensor) Sqrt() *Tensor { return unary(kernel.OpSqrt, x) }

// Rsqrt returns 1/√x.
func (x *Tensor) Rsqrt() *Tensor { return unary(kernel.OpRsqrt, x) }

// Tanh returns tanh x.
func (x *Tensor) Tanh() *Tensor { return unary(kernel.OpTanh, x) }

// Sigmoid returns 1/(1+e⁻ˣ).
func (x *Tensor) Sigmoid() *Tensor { return unary(kernel.OpSigmoid, x) }

// Relu returns max(x, 0); its gradient at 0 is 0, and at NaN dy as in PyTorch.
func (x *Tensor) Relu() *Tensor { return unary(kernel.OpRelu, x) }

// Gelu returns x·Φ(x), with the exact error function.
func (x *Tensor) Gelu() *Tensor { return unary(kernel.OpGelu, x) }

// GeluTanh returns x·½(1 + tanh(√(2/π)·(x + 0.044715·x³))), the form of Gelu that GPT-2
// and Gemma have.
func (x *Tensor) GeluTanh() *Tensor { return unary(kernel.OpGeluTanh, x) }

// Silu returns x·sigmoid(x).
func (x *Tensor) Silu() *Tensor { return unary(kernel.OpSilu, x) }

// Square returns x².
func (x *Tensor) Square() *Tensor { return unary(kernel.OpSquare, x) }

// Sign returns -1, 0 or 1; its gradient is 0.
func (x *Tensor) Sign() *Tensor { return unary(kernel.OpSign, x) }

// Erf returns the error function of x.
func (x *Tensor) Erf() *Tensor { return unary(kernel.OpErf, x) }

// Sin returns the sine of x, which is in radians.
func (x *Tensor) Sin() *Tensor { return unary(kernel.OpSin, x) }

// Cos returns the cosine of x, which is in radians.
func (x *Tensor) Cos() *Tensor { return unary(kernel.OpCos, x) }

// Log1p returns ln(1 + x), exact for small x too; NaN below -1.
func (x *Tensor) Log1p() *Tensor { return unary(kernel.OpLog1p, x) }

// Expm1 returns eˣ - 1, exact for small x too.
func (x *Tensor) Expm1() *Tensor { return unary(kernel.OpExpm1, x) }

// Tan returns the tangent of x, which is in radians.
func (x *Tensor) Tan() *Tensor { return unary(kernel.OpTan, x) }

// Asin returns the arcsine in radians, NaN unless |x| <= 1.
func (x *Tensor) Asin() *Tensor { return unary(kernel.OpAsin, x) }

// Acos returns the arccosine in radians, NaN unless |x| <= 1.
func (x *Tensor) Acos() *Tensor { return unary(kernel.OpAcos, x) }

// Atan returns the arctangent in radians.
func (x *Tensor) Atan() *Tensor { return unary(kernel.OpAtan, x) }

// Sinh returns the hyperbolic sine.
func (x *Tensor) Sinh() *Tensor { return unary(kernel.OpSinh, x) }

// Cosh returns the hyperbolic cosine.
func (x *Tensor) Cosh() *Tensor { return unary(kernel.OpCosh, x) }

// Asinh returns the inverse of the hyperbolic sine.
func (x *Tensor) Asinh() *Tensor { return unary(kernel.OpAsinh, x) }

// Acosh returns the inverse of the hyperbolic cosine, NaN below 1.
func (x *Tensor) Acosh() *Tensor { return unary(kernel.OpAcosh, x) }

// Atanh returns the inverse of the hyperbolic tangent, NaN unless |x| <= 1.
func (x *Tensor) Atanh() *Tensor { return unary(kernel.OpAtanh, x) }

// Erfc returns 1 - Erf(x), exact for large x too.
func (x *Tensor) Erfc() *Tensor { return unary(kernel.OpErfc, x) }

// Erfinv returns the inverse of Erf, NaN unless |x| <= 1.
func (x *Tensor) Erfinv() *Tensor { return unary(kernel.OpErfinv, x) }

// Exp2 returns 2ˣ.
func (x *Tensor) Exp2() *Tensor { return unary(kernel.OpExp2, x) }

// Log2 returns the logarithm to base 2, exact of powers of 2; NaN of a negative number.
func (x *Tensor) Log2() *Tensor { return unary(kernel.OpLog2, x) }

// Log10 returns the logarithm to base 10, NaN of a negative number.
func (x *Tensor) Log10() *Tensor { return unary(kernel.OpLog10, x) }

// Lgamma returns ln|Γ(x)|, the logarithm of the gamma function's absolute value.
func (x *Tensor) Lgamma() *Tensor { return unary(kernel.OpLgamma, x) }

// Digamma returns ψ(x), the derivative of Lgamma; NaN at negative integers.
func (x *Tensor) Digamma() *Tensor { return unary(kernel.OpDigamma, x) }

// I0 returns the modified Bessel function of the first kind, of order 0.
func (x *Tensor) I0() *Tensor { return unary(kernel.OpI0, x) }

// laws are the laws of package kernel as package layout knows them.
var laws = [...]layout.Law{
	kernel.Opaque:  layout.Opaque,
	kernel.Negates: layout.Negates, kernel.Monotone: layout.Monotone, kernel.MonotoneAbove: layout.MonotoneAbove,
	kernel.Adds: layout.Adds, kernel.Subtracts: layout.Subtracts, kernel.Multiplies: layout.Multiplies,
	kernel.Divides: layout.Divides, kernel.Maximizes: layout.Maximizes, kernel.Minimizes: layout.Minimizes,
}

func unary(op kernel.UnaryOp, x *Tensor) *Tensor {
	m := x.spec.mesh
	defer m.Span(op.String()).End()
	law := laws[op.Row().Law]
	if !x.DType().Float() {
		law = integerLaw(law)
	}
	if op == kernel.OpNeg {
		law = scales(x, law)
	}
	key := ruleKey{op: op.String(), attr: [3]int{int(law)}, nodes: m.inNodes([]*Tensor{x})}
	key.in[0] = x.spec
	r := m.rules.get(key.slot(), &key)
	if r == nil {
		r = m.rule(key, func() (*layout.Rule, error) { return pointwise(key.op, law, x) }, x)
	}
	in := x.to(r.in[0], key.op)
	out := &Tensor{spec: r.out[0], mask: in.mask.Hold(), clean: in.clean, from: in.from}
	if m.coord != nil {
		out.local = tensor.Unary(op, in.local)
	} else {
		out.local = in.local
	}
	out.made(key.op, in)
	if x.tracked() {
		var kept *Tensor // what the gradient reads besides dy
		if op.NeedsInput() {
			kept = in
		} else if op.NeedsOutput() {
			kept = out
		}
		out.recordTwice(key.op, func(gy *Tensor) { in.accumulate(unaryGrad(op, gy, kept)) })
	}
	return out
}

// unaryGrad returns gy·op'(x); kept is x or y = op(x), whichever op needs.
func unaryGrad(op kernel.UnaryOp, gy, kept *Tensor) *Tensor {
	if kept == nil {
		if op == kernel.OpNeg {
			return gy.Neg()
		}
		return gy.Scale(0)
	}
	if gy.again() {
		slope := slopeOf(op)
		if slope == nil {
			refuseTwice(op.String(), kept.spec)
		}
		return gy.widen().Mul(slope(kept.widen())).Cast(gy.DType())
	}
	law := layout.Weighs
	if op.Row().Pole {
		law = layout.Divides
	}
	return inPairsBy(law, op.String()+"Grad", gy, kept, func(gy, kept *tensor.Tensor) *tensor.Tensor {
		return tensor.UnaryGrad(op, gy, kept, kept)
	})
}

// inPairs computes an element-wise function of two tensors of one shape that is the
// first times a function of the second without poles. It is not recorded.
func inPairs(op string, a, b *Tensor, f func(a, b *tensor.Tensor) *tensor.Tensor) *Tensor {
	return inPairsBy(layout.Weighs, op, a, b, f)
}

// inPairsBy is inPairs for a law of its own.
func inPairsBy(law layout.Law, op string, a, b *Tensor, f func(a, b *tensor.Tensor) *tensor.Tensor) *Tensor {
	m := a.spec.mesh
	r := m.rule(keyOf(op, a, b), func() (*layout.Rule, error) { return pointwise(op, law, a, b) }, a, b)
	a, b = a.to(r.in[0], op), b.to(r.in[1], op)
	if m.outside() {
		return wrap(r.out[0], a.local)
	}
	return wrap(r.out[0], f(a.local, b.local)).of(a.from*31 ^ b.from)
}

// single computes an element-wise function of one tensor. It is not recorded.
func single(op string, law layout.Law, x *Tensor, dt tensor.DType, f func(x *tensor.Tensor) *tensor.Tensor) *Tensor {
	m := x.spec.mesh
	defer m.Span(op).End()
	key := ruleKey{op: op, attr: [3]int{int(law)}}
	key.in[0] = x.spec
	r := m.rule(key, func() (*layout.Rule, error) { return pointwise(op, law, x) }, x)
	in := x.to(r.in[0], op)
	out := &Tensor{spec: r.out[0], mask: in.mask.Hold(), clean: in.clean, from: in.from}
	if m.outside() {
		out.local = m.empty(r.out[0], dt).local
	} else {
		out.local = f(in.local)
	}
	out.made(op, in)
	return out
}

// AddScalar returns x + v.
func (x *Tensor) AddScalar(v float64) *Tensor {
	law := layout.Monotone
	if math.IsInf(v, 0) || !x.DType().Float() { // with a part that is infinite the other way it would make NaN; integers wrap
		law = layout.Opaque
	}
	out := single("AddScalar", law, x, x.DType(), func(x *tensor.Tensor) *tensor.Tensor { return tensor.AddScalar(x, v) })
	if x.tracked() {
		out.recordTwice("AddScalar", x.accumulate)
	}
	return out
}

// Scale returns x·v.
func (x *Tensor) Scale(v float64) *Tensor {
	law := scales(x, layout.Scales)
	if math.IsInf(v, 0) { // times a part that is 0 it would make NaN
		law = layout.Opaque
	}
	out := single("Scale", law, x, x.DType(), func(x *tensor.Tensor) *tensor.Tensor { return tensor.MulScalar(x, v) })
	if x.tracked() {
		out.recordTwice("Scale", func(gy *Tensor) { x.accumulate(gy.Scale(v)) })
	}
	return out
}

// scales is the law of a multiplication by a number. Ids that are MaskPartial
// are shifted: they are brought back first.
func scales(x *Tensor, law layout.Law) layout.Law {
	if x.spec.masked && !x.DType().Float() {
		return layout.Opaque
	}
	return law
}

// PowScalar returns xᵛ. Its gradient is v·xᵛ⁻¹, for a v of 0 none.
func (x *Tensor) PowScalar(v float64) *Tensor {
	defer x.spec.mesh.Span("PowScalar").End()
	out := single("PowScalar", layout.Opaque, x, x.DType(), func(x *tensor.Tensor) *tensor.Tensor {
		return tensor.BinaryScalar(kernel.OpPow, x, v)
	})
	if x.tracked() {
		out.recordTwice("PowScalar", func(gy *Tensor) {
			switch v {
			case 0: // also at 0
				x.accumulate(gy.Scale(0))
			case 2:
				x.accumulate(gy.Mul(x.Scale(2)))
			default:
				x.accumulate(gy.Mul(x.PowScalar(v - 1).Scale(v)))
			}
		})
	}
	return out
}

// Clamp returns min(max(x, lo), hi), NaN if a bound is. Its gradient is dy where lo <= x <= hi.
func (x *Tensor) Clamp(lo, hi float64) *Tensor {
	if math.IsNaN(lo) || math.IsNaN(hi) {
		return x.Scale(math.NaN())
	}
	out := single("Clamp", layout.Monotone, x, x.DType(), func(x *tensor.Tensor) *tensor.Tensor { return tensor.Clamp(x, lo, hi) })
	if x.tracked() {
		in := x.Detach()
		out.recordTwice("Clamp", func(gy *Tensor) {
			if gy.again() {
				low, high := in.CompareScalar(kernel.OpLt, lo), in.CompareScalar(kernel.OpGt, hi)
				x.accumulate(gy.keepWhere(low, false).keepWhere(high, false))
				return
			}
			x.accumulate(inPairs("ClampGrad", gy, in, func(gy, in *tensor.Tensor) *tensor.Tensor { return tensor.ClampGrad(gy, in, lo, hi) }))
		})
	}
	return out
}

// Cast returns x with elements of another type: floats round to nearest even,
// and truncate towards zero to an integer; Bool is x != 0. Its gradient is
// cast back.
func (x *Tensor) Cast(dt tensor.DType) *Tensor {
	from := x.DType()
	if dt == from {
		return x
	}
	floats := from.Float() && dt.Float()
	law := layout.Opaque
	if floats {
		law = layout.Casts
	}
	out := single("Cast", law, x, dt, func(x *tensor.Tensor) *tensor.Tensor { return tensor.Cast(x, dt) })
	if floats && x.tracked() {
		out.recordTwice("Cast", func(gy *Tensor) {
			if gy.again() || !out.node.defers(gy) {
				gy = gy.Cast(from)
			}
			x.accumulate(gy)
		})
		if x.node.back == nil && dt.Narrow() && dt.Wide() == from {
			out.node.narrows = true
		}
	}
	return out
}

// Compare returns a Bool tensor of op over the elements of a and b, whose
// shapes broadcast. op is a constant of package tensor/kernel, OpEq, OpNe, OpLt,
// OpLe, OpGt or OpGe: a.Compare(kernel.OpLt, b) is a < b.
func (a *Tensor) Compare(op kernel.CompareOp, b *Tensor) *Tensor {
	wantComparison("Compare", op, a)
	return a.compare(op.String(), op, b)
}

// compare is Compare of an operator name.
func (a *Tensor) compare(name string, op kernel.CompareOp, b *Tensor) *Tensor {
	defer a.spec.mesh.Span(name).End()
	m := sameMesh(name, a, b)
	sameType(name, a, b)
	r := m.rule(keyOf(name, a, b), func() (*layout.Rule, error) { return pointwise(name, layout.Opaque, a, b) }, a, b)
	x, y := a.to(r.in[0], name), b.to(r.in[1], name)
	return m.part(r.out[0], tensor.Bool, func() *tensor.Tensor { return tensor.Compare(op, x.local, y.local) })
}

// CompareScalar returns a Bool tensor of op over the elements of x and v:
// x.CompareScalar(kernel.OpGe, 0.5) is x >= 0.5.
func (x *Tensor) CompareScalar(op kernel.CompareOp, v float64) *Tensor {
	wantComparison("CompareScalar", op, x)
	return single(op.String(), layout.Opaque, x, tensor.Bool, func(x *tensor.Tensor) *tensor.Tensor { return tensor.CompareScalar(op, x, v) })
}

func wantComparison(name string, op kernel.CompareOp, x *Tensor) {
	if op > kernel.OpGe {
		refuse(name, fmt.Sprintf("%v is no comparison", op), "give one of package kernel, OpEq to OpGe", operand("x", x))
	}
}

// Where returns the elements of a where t, a Bool tensor, is true and those of
// b elsewhere; the three broadcast. Two that are sums over ranks, or one and what is
// replicated, are selected from as they are, and the result is such a sum; so are products,
// maxima and minima. The gradient goes to the argument that was taken.
func (t *Tensor) Where(a, b *Tensor) *Tensor { return t.where("Where", a, b) }

// where is Where of an operator op.
func (t *Tensor) where(op string, a, b *Tensor) *Tensor {
	defer t.spec.mesh.Span(op).End()
	m := sameMesh(op, t, a, b)
	if t.DType() != tensor.Bool || a.DType() != b.DType() {
		refuse(op, fmt.Sprintf("the types are %v, %v and %v", t.DType(), a.DType(), b.DType()), "give a Bool and two of one type",
			operand("cond", t), operand("a", a), operand("b", b))
	}
	r := m.rule(keyOf(op, t, a, b), func() (*layout.Rule, error) { return pointwise(op, layout.Selects, t, a, b) }, t, a, b)
	c, x, y := t.to(r.in[0], op), a.to(r.in[1], op), b.to(r.in[2], op)
	out := m.part(r.out[0], a.DType(), func() *tensor.Tensor { return tensor.Where(c.local, x.local, y.local) })
	if Tracked(a, b) {
		out.recordTwice(op, func(gy *Tensor) {
			if x.takes() {
				x.accumulate(gy.keepWhere(c, true).sumTo(a.spec.shape))
			}
			if y.takes() {
				y.accumulate(gy.keepWhere(c, false).sumTo(b.spec.shape))
			}
		})
	}
	return out
}

// keepWhere returns t where cond is value and 0 elsewhere.
func (t *Tensor) keepWhere(cond *Tensor, value bool) *Tensor {
	op := "keepWhere true"
	if !value {
		op = "keepWhere false"
	}
	out := inPairs(op, t, cond, func(t, cond *tensor.Tensor) *tensor.Tensor {
		zero := tensor.Full(t.Device(), t.DType(), 0)
		if value {
			return tensor.Where(cond, t, zero)
		}
		return tensor.Where(cond, zero, t)
	})
	if t.tracked() {
		out.recordTwice(op, func(gy *Tensor) { t.accumulate(gy.keepWhere(cond, value).sumTo(t.spec.shape)) })
	}
	return out
}

// MaskedFill returns x with v wherever mask, a Bool tensor that broadcasts to
// x, is true. Its gradient is dy with 0 there. v has to be one that x's type can hold.
func (x *Tensor) MaskedFill(mask *Tensor, v float64) *Tensor {
	return x.maskedFill("MaskedFill", mask, v)
}

// maskedFill is MaskedFill of an operator op.
func (x *Tensor) maskedFill(op string, mask *Tensor, v float64) *Tensor {
	sameMesh(op, x, mask)
	if mask.DType() != tensor.Bool {
		refuse(op, "the mask holds "+mask.DType().String(), "compare it first", operand("x", x), operand("mask", mask))
	}
	for i, j := len(mask.spec.shape)-1, len(x.spec.shape)-1; i >= 0 && j >= 0; i, j = i-1, j-1 {
		if p, n := mask.spec.shape[i], x.spec.shape[j]; p != n && p != 1 && n != 1 {
			refuse(op, fmt.Sprintf("the mask does not broadcast: it has %d elements along dim %d and x has %d along dim %d", p, i, n, j),
				"Unsqueeze or Reshape it so that its last dims are x's or 1", operand("x", x), operand("mask", mask))
		}
	}
	if x.DType() != tensor.Bool && !x.DType().Holds(v) {
		refuse(op, fmt.Sprintf("x holds %v, which cannot be %v", x.DType(), v), "Cast x first, or give a number that it can hold",
			operand("x", x), operand("mask", mask))
	}
	return mask.where(op, filled(x.spec.mesh.shapeSpec(op, nil), x.DType(), v), x)
}
