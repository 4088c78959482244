package dtensor

import (
	"slices"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
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

// Add returns a + b.
func (a *Tensor) Add(b *Tensor) *Tensor { return binary(tensor.OpAdd, a, b) }

// Sub returns a - b.
func (a *Tensor) Sub(b *Tensor) *Tensor { return binary(tensor.OpSub, a, b) }

// Mul returns a·b, element by element.
func (a *Tensor) Mul(b *Tensor) *Tensor { return binary(tensor.OpMul, a, b) }

// Div returns a/b, element by element. Of integers it is cut off towards 0, and 0
// where b is; a sum of integers is therefore reduced first.
func (a *Tensor) Div(b *Tensor) *Tensor { return binary(tensor.OpDiv, a, b) }

// Maximum returns the larger of each pair of elements.
func (a *Tensor) Maximum(b *Tensor) *Tensor { return binary(tensor.OpMaximum, a, b) }

// Minimum returns the smaller of each pair of elements.
func (a *Tensor) Minimum(b *Tensor) *Tensor { return binary(tensor.OpMinimum, a, b) }

// Pow returns aᵇ, element by element.
func (a *Tensor) Pow(b *Tensor) *Tensor { return binary(tensor.OpPow, a, b) }

var binaryLaws = [...]layout.Law{
	tensor.OpAdd: layout.Adds, tensor.OpSub: layout.Subtracts, tensor.OpMul: layout.Multiplies, tensor.OpDiv: layout.Divides,
	tensor.OpMaximum: layout.Maximizes, tensor.OpMinimum: layout.Minimizes, tensor.OpPow: layout.Opaque,
}

func binary(op tensor.BinaryOp, a, b *Tensor) *Tensor {
	if a.spec.masked && !a.DType().Float() { // ids that are MaskPartial are shifted
		a = a.Reduced()
	}
	m := a.spec.mesh
	law := binaryLaws[op]
	if op == tensor.OpDiv && !a.DType().Float() {
		law = layout.Opaque
	}
	key := ruleKey{op: op.String(), attr: [3]int{int(law)}}
	key.in[0], key.in[1] = a.spec, b.spec
	r, ok := m.rules[key]
	if !ok {
		r = binaryRule(key, law, a, b)
	}
	if a.DType() != b.DType() {
		sameType(key.op, a, b)
	}
	x, y := a.to(r.in[0], key.op), b.to(r.in[1], key.op)
	out := &Tensor{spec: r.out[0], mask: x.mask.Hold()}
	if m.coord != nil {
		out.local = tensor.Binary(op, x.local, y.local)
	} else {
		out.local = m.empty(r.out[0], a.DType()).local
	}
	if (x.node != nil || y.node != nil) && Tracked(a, b) {
		out.record(key.op, func(gy *Tensor) { binaryBack(op, gy, x, y, out) })
	}
	return out
}

// binaryRule makes the rule of an element-wise operator of two tensors.
func binaryRule(key ruleKey, law layout.Law, a, b *Tensor) *rule {
	m := sameMesh(key.op, a, b)
	return m.rule(key, func() (*layout.Rule, error) { return pointwise(key.op, law, a, b) }, a, b)
}

// binaryBack hands a and b their parts of the gradient of y = op(a, b).
func binaryBack(op tensor.BinaryOp, gy, a, b, y *Tensor) {
	var ga, gb *Tensor
	wantA, wantB := a.node != nil, b.node != nil
	inA, inB, dt := a, b, gy.DType()
	if op == tensor.OpDiv || op == tensor.OpPow { // several steps: rounded at the end
		gy, a, b, y = gy.widen(), a.widen(), b.widen(), y.widen()
	}
	switch op {
	case tensor.OpAdd:
		ga, gb = gy, gy
	case tensor.OpSub:
		ga = gy
		if wantB {
			gb = gy.Neg()
		}
	case tensor.OpMul:
		if wantA {
			ga = gy.Mul(b)
		}
		if wantB {
			gb = gy.Mul(a)
		}
	case tensor.OpDiv:
		ga = gy.Div(b)
		if wantB {
			gb = ga.Mul(a).Div(b).Neg()
		}
	case tensor.OpMaximum, tensor.OpMinimum:
		loses := tensor.OpLt
		if op == tensor.OpMinimum {
			loses = tensor.OpGt
		}
		share := gy.Mul(a.Compare(tensor.OpEq, b).Cast(gy.DType()).Scale(-0.5).AddScalar(1))
		if wantA {
			ga = share.MaskedFill(a.Compare(loses, b), 0)
		}
		if wantB {
			gb = share.MaskedFill(b.Compare(loses, a), 0)
		}
	case tensor.OpPow:
		if wantA { // b·aᵇ⁻¹, 0 where b is 0
			p := b.Mul(a.Pow(b.AddScalar(-1)))
			ga = gy.Mul(p.MaskedFill(b.CompareScalar(tensor.OpEq, 0), 0))
		}
		if wantB { // aᵇ·ln a, 0 where a is 0 and b not negative
			none := a.CompareScalar(tensor.OpEq, 0).MaskedFill(b.CompareScalar(tensor.OpLt, 0), 0)
			gb = gy.Mul(y.Mul(a.Log()).MaskedFill(none, 0))
		}
	}
	if wantA {
		inA.accumulate(ga.sumTo(a.spec.shape).Cast(dt))
	}
	if wantB {
		inB.accumulate(gb.sumTo(b.spec.shape).Cast(dt))
	}
}

// widen returns t in the type in which it is computed with.
func (t *Tensor) widen() *Tensor { return t.Cast(tensor.WideType(t.DType())) }

// sumTo sums what a broadcast from shape to t's shape repeated.
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
	return t.Sum(dims, true).Reshape(shape...)
}

// addInto adds g to dst in place; they have one layout.
func addInto(dst, g *Tensor) {
	if !dst.spec.mesh.outside() {
		tensor.AddTo(dst.local, g.local)
	}
}
