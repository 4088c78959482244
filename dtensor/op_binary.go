package dtensor

import (
	"slices"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// The element-wise operators of two tensors broadcast as NumPy does: shapes
// are aligned at the last dimension, and a size of 1 is repeated. The letters
// below stand for any dimension of the result; an operand that repeats the
// dimension is R where the other is sharded on it.
//
//	a          b          result
//	S(i)       S(i)       S(i)
//	R          R          R
//	P(sum)     P(sum)     P(sum)     Add, Sub; P(avg) likewise
//	P(sum)     R          P(sum)     Mul; P(avg) likewise
//	R          P(sum)     P(sum)     Mul; P(avg) likewise
//	P(max)     P(max)     P(max)     Maximum; also with R; P(min) for Minimum
//	P(max)     R          P(max)     Add, Sub of floating-point numbers; P(min) likewise
//	MaskP      R          MaskP      Mul, Div by a tensor of one element
//	other                 the cheapest of these rows
//
// A P(sum) is divided after its reduction, for the parts of x/0 would make NaN of an
// infinity. The same holds of a product with an infinite factor, and of an infinity added
// to a P(max) or P(min): there the result may be NaN where it were infinite had the
// parts been reduced before.
//
// Operands of different types, and shapes that do not broadcast, throw.
//
// The gradients, summed over what was repeated:
//
//	Add      da = dy          db = dy
//	Sub      da = dy          db = -dy
//	Mul      da = dy·b        db = dy·a
//	Div      da = dy/b        db = -dy·a/b²
//	Maximum, Minimum          dy goes to the argument that was taken, half to each if equal, all to both if one is NaN
//	Pow      da = dy·b·aᵇ⁻¹   db = dy·aᵇ·ln a, 0 where a is 0 and b not negative
//	Remainder   da = dy       db = -dy·⌊a/b⌋
//	Fmod     da = dy          db = -dy·trunc(a/b)
//	FloorDivide   da = 0      db = 0
//	Atan2    da = dy·b/(a²+b²)   db = -dy·a/(a²+b²)

// Add returns a + b.
func (a *Tensor) Add(b *Tensor) *Tensor { return binary(kernel.OpAdd, a, b) }

// Sub returns a - b.
func (a *Tensor) Sub(b *Tensor) *Tensor { return binary(kernel.OpSub, a, b) }

// Mul returns a·b, element by element.
func (a *Tensor) Mul(b *Tensor) *Tensor { return binary(kernel.OpMul, a, b) }

// Div returns a/b, element by element. Of integers it is cut off towards 0, and 0
// where b is; a sum of integers is therefore reduced first.
func (a *Tensor) Div(b *Tensor) *Tensor { return binary(kernel.OpDiv, a, b) }

// Maximum returns the larger of each pair of elements.
func (a *Tensor) Maximum(b *Tensor) *Tensor { return binary(kernel.OpMaximum, a, b) }

// Minimum returns the smaller of each pair of elements.
func (a *Tensor) Minimum(b *Tensor) *Tensor { return binary(kernel.OpMinimum, a, b) }

// Pow returns aᵇ, element by element.
func (a *Tensor) Pow(b *Tensor) *Tensor { return binary(kernel.OpPow, a, b) }

// Remainder returns what is left of a when b is taken away ⌊a/b⌋ times; it has the sign of b, as % in Python, and is exact except for
// one rounding where the signs differ. Of integers, where b is 0 it is a.
func (a *Tensor) Remainder(b *Tensor) *Tensor { return binary(kernel.OpRemainder, a, b) }

// Fmod returns what is left of a when b is taken away trunc(a/b) times; it has the sign of a, as % in Go, and is exact. Of
// integers, where b is 0 it is a.
func (a *Tensor) Fmod(b *Tensor) *Tensor { return binary(kernel.OpFmod, a, b) }

// FloorDivide returns the largest whole number that is not above a/b, as // in Python: of the exact quotient, where the Floor of
// Div is that of a rounded one. Where b is 0 it is a/b, of integers 0.
func (a *Tensor) FloorDivide(b *Tensor) *Tensor { return binary(kernel.OpFloorDivide, a, b) }

// Atan2 returns the angle of the point (b, a) in radians, from -π to π: that of a/b, in the quadrant that the signs say. It
// takes floating-point numbers. Its gradient at (0, 0) is NaN, as in PyTorch.
func (a *Tensor) Atan2(b *Tensor) *Tensor { return binary(kernel.OpAtan2, a, b) }

// integerLaw is the law of an operator on integers: their sums wrap, so that a sum with a
// larger number, or what is the larger one negated, need not be the larger one; and
// quotients are cut off.
func integerLaw(law layout.Law) layout.Law {
	switch law {
	case layout.Adds, layout.Subtracts:
		return layout.AddsWrapping
	case layout.Negates:
		return layout.Scales
	case layout.Divides:
		return layout.Opaque
	}
	return law
}

func binary(op kernel.BinaryOp, a, b *Tensor) *Tensor {
	defer a.spec.mesh.Span(op.String()).End()
	if b == nil {
		sameMesh(op.String(), a, b) // refuses it
	}
	dt := a.DType()
	if a.spec.masked && !dt.Float() { // ids that are MaskPartial are shifted
		a = a.Reduced()
	}
	m := a.spec.mesh
	law := laws[op.Row().Law]
	if !dt.Float() {
		law = integerLaw(law)
	}
	key := ruleKey{op: op.String(), attr: [3]int{int(law)}, nodes: m.inNodes([]*Tensor{a, b})}
	key.in[0], key.in[1] = a.spec, b.spec
	r := m.rules.get(key.slot(), &key)
	if r == nil {
		r = binaryRule(key, law, a, b)
	}
	if dt != b.DType() {
		sameType(key.op, a, b)
	}
	x, y := a.to(r.in[0], key.op), b.to(r.in[1], key.op)
	out := &Tensor{spec: r.out[0], mask: x.mask.Hold(), from: x.from*31 ^ y.from}
	if m.coord != nil {
		out.local = tensor.Binary(op, x.local, y.local)
	} else {
		out.local = m.empty(r.out[0], dt).local
	}
	out.made(key.op, x, y)
	if (x.node != nil || y.node != nil) && Tracked(a, b) {
		out.recordTwice(key.op, func(gy *Tensor) { binaryBack(op, gy, x, y, out) })
	}
	return out
}

// binaryRule makes the rule of an element-wise operator of two tensors.
func binaryRule(key ruleKey, law layout.Law, a, b *Tensor) *rule {
	m := sameMesh(key.op, a, b)
	return m.rule(key, func() (*layout.Rule, error) { return pointwise(key.op, law, a, b) }, a, b)
}

// A binaryGrad is what the gradients of y = op(a, b) are computed from, and which of them are
// wanted.
type binaryGrad struct {
	gy, a, b, y  *Tensor
	wantA, wantB bool
}

// widen returns g in the type in which it is computed with: for gradients of several steps,
// which are rounded at the end.
func (g binaryGrad) widen() binaryGrad {
	return binaryGrad{g.gy.widen(), g.a.widen(), g.b.widen(), g.y.widen(), g.wantA, g.wantB}
}

// binaryGradOf returns how the gradients of op for a and b are computed, before what a
// broadcast repeated is summed. One that is not wanted may be nil.
func binaryGradOf(op kernel.BinaryOp) func(g binaryGrad) (ga, gb *Tensor) {
	return [...]func(g binaryGrad) (ga, gb *Tensor){
		kernel.OpAdd: func(g binaryGrad) (ga, gb *Tensor) { return g.gy, g.gy },
		kernel.OpSub: func(g binaryGrad) (ga, gb *Tensor) {
			if g.wantB {
				gb = g.gy.Neg()
			}
			return g.gy, gb
		},
		kernel.OpMul: func(g binaryGrad) (ga, gb *Tensor) {
			if g.wantA {
				ga = g.gy.Mul(g.b)
			}
			if g.wantB {
				gb = g.gy.Mul(g.a)
			}
			return ga, gb
		},
		kernel.OpDiv: func(g binaryGrad) (ga, gb *Tensor) { // dy/b and -dy·a/b²
			g = g.widen()
			ga = g.gy.Div(g.b)
			if g.wantB {
				gb = ga.Mul(g.a).Div(g.b).Neg()
			}
			return ga, gb
		},
		kernel.OpMaximum:   func(g binaryGrad) (ga, gb *Tensor) { return g.largest(kernel.OpLt) },
		kernel.OpMinimum:   func(g binaryGrad) (ga, gb *Tensor) { return g.largest(kernel.OpGt) },
		kernel.OpPow:       binaryGrad.power,
		kernel.OpRemainder: binaryGrad.rest,
		kernel.OpFmod:      binaryGrad.rest,
		kernel.OpFloorDivide: func(g binaryGrad) (ga, gb *Tensor) {
			none := g.gy.Scale(0)
			return none, none
		},
		kernel.OpAtan2: func(g binaryGrad) (ga, gb *Tensor) {
			g = g.widen()
			share := g.gy.Div(g.a.Square().Add(g.b.Square()))
			if g.wantA {
				ga = share.Mul(g.b)
			}
			if g.wantB {
				gb = share.Mul(g.a).Neg()
			}
			return ga, gb
		},
	}[op]
}

// largest is the gradient of Maximum and Minimum: half for each of equal arguments, else all
// for the one that is not less, or not greater.
func (g binaryGrad) largest(loses kernel.CompareOp) (ga, gb *Tensor) {
	share := g.gy.Mul(g.a.Compare(kernel.OpEq, g.b).Cast(g.gy.DType()).Scale(-0.5).AddScalar(1))
	if g.wantA {
		ga = share.MaskedFill(g.a.Compare(loses, g.b), 0)
	}
	if g.wantB {
		gb = share.MaskedFill(g.b.Compare(loses, g.a), 0)
	}
	return ga, gb
}

// rest is the gradient of Remainder and Fmod, y = a - q·b with a whole q that does not move: q is taken from a, y and b.
func (g binaryGrad) rest() (ga, gb *Tensor) {
	if g.wantB {
		w := g.widen()
		gb = w.gy.Mul(w.a.Sub(w.y).Div(w.b).Round()).Neg()
	}
	return g.gy, gb
}

// power is the gradient of Pow: b·aᵇ⁻¹, 0 where b is 0, and aᵇ·ln a, 0 where a is 0 and b not
// negative.
func (g binaryGrad) power() (ga, gb *Tensor) {
	g = g.widen()
	if g.wantA {
		p := g.b.Mul(g.a.Pow(g.b.AddScalar(-1)))
		ga = g.gy.Mul(p.MaskedFill(g.b.CompareScalar(kernel.OpEq, 0), 0))
	}
	if g.wantB {
		none := g.a.CompareScalar(kernel.OpEq, 0).MaskedFill(g.b.CompareScalar(kernel.OpLt, 0), 0)
		gb = g.gy.Mul(g.y.Mul(g.a.Log()).MaskedFill(none, 0))
	}
	return ga, gb
}

// binaryBack hands a and b their parts of the gradient of y = op(a, b).
func binaryBack(op kernel.BinaryOp, gy, a, b, y *Tensor) {
	dt := gy.DType()
	ga, gb := binaryGradOf(op)(binaryGrad{gy, a, b, y, a.takes(), b.takes()})
	if a.takes() {
		a.accumulateSum(ga, dt)
	}
	if b.takes() {
		b.accumulateSum(gb, dt)
	}
}

// accumulateSum hands t the sum over what a broadcast has repeated of g, in type dt.
func (t *Tensor) accumulateSum(g *Tensor, dt tensor.DType) {
	if g.spec != t.spec || g.DType() != dt {
		if g = g.sumTo(t.spec.shape); g.spec.nodes() == 0 { // others are rounded when they are added up
			g = g.Cast(dt)
		}
	}
	t.accumulate(g)
}

// widen returns t in the type in which it is computed with.
func (t *Tensor) widen() *Tensor { return t.Cast(t.DType().Wide()) }

// sumTo sums what a broadcast from shape to t's shape repeated. Nodes of it are in the type in which
// they are added up.
func (t *Tensor) sumTo(shape []int) *Tensor {
	if slices.Equal(shape, t.spec.shape) {
		return t
	}
	lead := t.NDim() - len(shape)
	var dims []int
	for d, size := range t.spec.shape {
		if d < lead || shape[d-lead] == 1 && size != 1 {
			dims = append(dims, d)
		}
	}
	if !t.again() && t.spec.mesh.inNodes([]*Tensor{t}) {
		sum := t.wideSum(dims, true)
		if sum.spec.nodes() == 0 {
			sum = sum.Cast(t.DType())
		}
		return sum.Reshape(shape...)
	}
	return t.Sum(dims, true).Reshape(shape...)
}
