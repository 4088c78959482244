package dtensor

import (
	"fmt"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// The element-wise operators of one tensor.
//
//	x                   result
//	S(i)                S(i)
//	R                   R
//	P(sum), P(avg)      the same      Neg, Scale, Cast between floating-point types
//	P(avg, min, max)    the same      AddScalar
//	P(min), P(max)      the same      what never decreases: Exp, Log, Sqrt, Tanh, Sigmoid, Relu
//	MaskP               MaskP         Scale, Cast between floating-point types
//	other P             R, after a reduction
//
// Each gradient is dx = dy·f'(x), with dy in any layout.

// Neg returns -x.
func (x *Tensor) Neg() *Tensor { return unary(tensor.OpNeg, x) }

// Abs returns |x|; its gradient at 0 is 0.
func (x *Tensor) Abs() *Tensor { return unary(tensor.OpAbs, x) }

// Exp returns eˣ.
func (x *Tensor) Exp() *Tensor { return unary(tensor.OpExp, x) }

// Log returns the natural logarithm, NaN of a negative number.
func (x *Tensor) Log() *Tensor { return unary(tensor.OpLog, x) }

// Sqrt returns √x, NaN of a negative number.
func (x *Tensor) Sqrt() *Tensor { return unary(tensor.OpSqrt, x) }

// Rsqrt returns 1/√x.
func (x *Tensor) Rsqrt() *Tensor { return unary(tensor.OpRsqrt, x) }

// Tanh returns tanh x.
func (x *Tensor) Tanh() *Tensor { return unary(tensor.OpTanh, x) }

// Sigmoid returns 1/(1+e⁻ˣ).
func (x *Tensor) Sigmoid() *Tensor { return unary(tensor.OpSigmoid, x) }

// Relu returns max(x, 0); its gradient at 0 is 0.
func (x *Tensor) Relu() *Tensor { return unary(tensor.OpRelu, x) }

// Gelu returns x·Φ(x), with the exact error function.
func (x *Tensor) Gelu() *Tensor { return unary(tensor.OpGelu, x) }

// Silu returns x·sigmoid(x).
func (x *Tensor) Silu() *Tensor { return unary(tensor.OpSilu, x) }

// Square returns x².
func (x *Tensor) Square() *Tensor { return unary(tensor.OpSquare, x) }

const monotone reduceSet = 1<<layout.Min | 1<<layout.Max

// unaryLinear returns the reductions that op can be exchanged with.
func unaryLinear(op tensor.UnaryOp) []linearRow {
	switch op {
	case tensor.OpNeg:
		return []linearRow{{1, linearOps}}
	case tensor.OpExp, tensor.OpLog, tensor.OpSqrt, tensor.OpTanh, tensor.OpSigmoid, tensor.OpRelu:
		return []linearRow{{1, monotone}}
	}
	return nil
}

func unary(op tensor.UnaryOp, x *Tensor) *Tensor {
	m := x.spec.mesh
	key := ruleKey{op: op.String()}
	key.in[0] = x.spec
	r := m.rule(key, 1, func() *form { return pointwise(key.op, unaryLinear(op), x) })
	in := x.to(r.in[0], key.op)
	out := &Tensor{spec: r.out[0]}
	if m.coord != nil {
		out.local = tensor.Unary(op, in.local)
	} else {
		out.local = in.local
	}
	if x.tracked() {
		var kept *Tensor // what the gradient reads besides dy
		if op.NeedsInput() {
			kept = in.Detach()
		} else if op.NeedsOutput() {
			kept = out.Detach()
		}
		out.record(key.op, func(gy *Tensor) { in.accumulate(unaryGrad(op, gy, kept)) })
	}
	return out
}

// unaryGrad returns gy·op'(x); kept is x or y = op(x), whichever op needs.
func unaryGrad(op tensor.UnaryOp, gy, kept *Tensor) *Tensor {
	if kept == nil {
		if op == tensor.OpNeg {
			return gy.Neg()
		}
		return gy.Scale(0)
	}
	return pairwise(op.String()+"Grad", gy, kept, func(gy, kept *tensor.Tensor) *tensor.Tensor {
		return tensor.UnaryGrad(op, gy, kept, kept)
	})
}

// pairwise computes an element-wise function of two tensors of one shape that
// is linear in the first. It is not recorded.
func pairwise(op string, a, b *Tensor, f func(a, b *tensor.Tensor) *tensor.Tensor) *Tensor {
	m := a.spec.mesh
	key := ruleKey{op: op}
	key.in[0], key.in[1] = a.spec, b.spec
	r := m.rule(key, 2, func() *form { return pointwise(op, []linearRow{{0b01, linearOps}}, a, b) })
	a, b = a.to(r.in[0], op), b.to(r.in[1], op)
	if m.outside() {
		return wrap(r.out[0], a.local)
	}
	return wrap(r.out[0], f(a.local, b.local))
}

// single computes an element-wise function of one tensor that can be exchanged
// with the reductions ops. It is not recorded.
func single(op string, ops reduceSet, x *Tensor, dt tensor.DType, f func(x *tensor.Tensor) *tensor.Tensor) *Tensor {
	m := x.spec.mesh
	key := ruleKey{op: op, attr: [3]int{int(ops)}}
	key.in[0] = x.spec
	r := m.rule(key, 1, func() *form { return pointwise(op, []linearRow{{1, ops}}, x) })
	in := x.to(r.in[0], op)
	if m.outside() {
		return m.empty(r.out[0], dt)
	}
	return wrap(r.out[0], f(in.local))
}

// AddScalar returns x + v.
func (x *Tensor) AddScalar(v float64) *Tensor {
	out := single("AddScalar", 1<<layout.Avg|monotone, x, x.DType(), func(x *tensor.Tensor) *tensor.Tensor { return tensor.AddScalar(x, v) })
	if x.tracked() {
		out.record("AddScalar", x.accumulate)
	}
	return out
}

// Scale returns x·v.
func (x *Tensor) Scale(v float64) *Tensor {
	var out *Tensor
	if x.spec.masked && x.DType().Float() {
		out = x.masked(tensor.MulScalar(x.local, v))
	} else {
		out = single("Scale", linearOps, x, x.DType(), func(x *tensor.Tensor) *tensor.Tensor { return tensor.MulScalar(x, v) })
	}
	if x.tracked() {
		out.record("Scale", func(gy *Tensor) { x.accumulate(gy.Scale(v)) })
	}
	return out
}

// PowScalar returns xᵛ. Its gradient is v·xᵛ⁻¹.
func (x *Tensor) PowScalar(v float64) *Tensor {
	out := single("PowScalar", 0, x, x.DType(), func(x *tensor.Tensor) *tensor.Tensor { return tensor.BinaryScalar(tensor.OpPow, x, v) })
	if x.tracked() {
		in := x.Detach()
		out.record("PowScalar", func(gy *Tensor) { x.accumulate(gy.Mul(in.PowScalar(v - 1).Scale(v))) })
	}
	return out
}

// Clamp returns min(max(x, lo), hi). Its gradient is dy where lo <= x <= hi.
func (x *Tensor) Clamp(lo, hi float64) *Tensor {
	out := single("Clamp", monotone, x, x.DType(), func(x *tensor.Tensor) *tensor.Tensor { return tensor.Clamp(x, lo, hi) })
	if x.tracked() {
		in := x.Detach()
		out.record("Clamp", func(gy *Tensor) {
			x.accumulate(pairwise("ClampGrad", gy, in, func(gy, in *tensor.Tensor) *tensor.Tensor { return tensor.ClampGrad(gy, in, lo, hi) }))
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
	var out *Tensor
	floats := from.Float() && dt.Float()
	switch {
	case x.spec.masked && floats:
		out = x.masked(tensor.Cast(x.local, dt))
	case floats:
		out = single("Cast", linearOps|monotone, x, dt, func(x *tensor.Tensor) *tensor.Tensor { return tensor.Cast(x, dt) })
	default:
		out = single("Cast", 0, x, dt, func(x *tensor.Tensor) *tensor.Tensor { return tensor.Cast(x, dt) })
	}
	if floats && x.tracked() {
		out.record("Cast", func(gy *Tensor) { x.accumulate(gy.Cast(from)) })
	}
	return out
}

// masked returns a MaskPartial tensor like x around another local value.
func (x *Tensor) masked(local *tensor.Tensor) *Tensor {
	return &Tensor{spec: x.spec, local: local, mask: x.mask.Hold(), clean: x.clean}
}

// Compare returns a Bool tensor of op over the elements of a and b, whose
// shapes broadcast.
func (a *Tensor) Compare(op tensor.CompareOp, b *Tensor) *Tensor {
	m := sameMesh(op.String(), a, b)
	key := ruleKey{op: op.String()}
	key.in[0], key.in[1] = a.spec, b.spec
	r := m.rule(key, 2, func() *form { return pointwise(key.op, nil, a, b) })
	x, y := a.to(r.in[0], key.op), b.to(r.in[1], key.op)
	if m.outside() {
		return m.empty(r.out[0], tensor.Bool)
	}
	return wrap(r.out[0], tensor.Compare(op, x.local, y.local))
}

// CompareScalar returns a Bool tensor of op(x, v).
func (x *Tensor) CompareScalar(op tensor.CompareOp, v float64) *Tensor {
	return single(op.String(), 0, x, tensor.Bool, func(x *tensor.Tensor) *tensor.Tensor { return tensor.CompareScalar(op, x, v) })
}

// Where returns the elements of a where t, a Bool tensor, is true and those of
// b elsewhere; the three broadcast. The gradient goes to the argument that was
// taken.
func (t *Tensor) Where(a, b *Tensor) *Tensor {
	m := sameMesh("Where", t, a, b)
	if t.DType() != tensor.Bool || a.DType() != b.DType() {
		refuse("Where", fmt.Sprintf("the types are %v, %v and %v", t.DType(), a.DType(), b.DType()), "give a Bool and two of one type",
			operand("cond", t), operand("a", a), operand("b", b))
	}
	key := ruleKey{op: "Where"}
	key.in[0], key.in[1], key.in[2] = t.spec, a.spec, b.spec
	r := m.rule(key, 3, func() *form { return pointwise("Where", []linearRow{{0b110, linearOps}}, t, a, b) })
	c, x, y := t.to(r.in[0], "Where"), a.to(r.in[1], "Where"), b.to(r.in[2], "Where")
	if m.outside() {
		return m.empty(r.out[0], a.DType())
	}
	out := wrap(r.out[0], tensor.Where(c.local, x.local, y.local))
	if Tracked(a, b) {
		out.record("Where", func(gy *Tensor) {
			if x.node != nil {
				x.accumulate(gy.keepWhere(c, true).sumTo(a.spec.shape))
			}
			if y.node != nil {
				y.accumulate(gy.keepWhere(c, false).sumTo(b.spec.shape))
			}
		})
	}
	return out
}

// keepWhere returns t where cond is value and 0 elsewhere. It is not recorded.
func (t *Tensor) keepWhere(cond *Tensor, value bool) *Tensor {
	op := "keepWhere true"
	if !value {
		op = "keepWhere false"
	}
	return pairwise(op, t, cond, func(t, cond *tensor.Tensor) *tensor.Tensor {
		zero := tensor.Scalar(t.Device(), t.DType(), 0)
		if value {
			return tensor.Where(cond, t, zero)
		}
		return tensor.Where(cond, zero, t)
	})
}

// MaskedFill returns x with v wherever mask, a Bool tensor that broadcasts to
// x, is true. Its gradient is dy with 0 there.
func (x *Tensor) MaskedFill(mask *Tensor, v float64) *Tensor {
	scalar := x.spec.mesh.mustSpec("MaskedFill", nil, x.spec.layout.Replicated().Placements())
	return mask.Where(filled(scalar, x.DType(), v), x)
}
