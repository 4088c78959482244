package dtensor

import (
	"fmt"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// MatMul returns a·b.
//
//	a [..., M, K]   b [..., K, N]   →   [..., M, N]
//
// The dimensions before the last two broadcast. A 1-D a is a row and a 1-D b a
// column; that dimension is removed from the result. For 2-D operands
//
//	a       b       result
//	R       R       R
//	S(0)    R       S(0)
//	R       S(1)    S(1)
//	S(1)    S(0)    P(sum)
//	P(sum)  R       P(sum)
//	R       P(sum)  P(sum)
//
// and a batch dimension that both have may be sharded in both. For any other
// pair the cheapest row is chosen and the operands are redistributed to it. The
// gradients are da = dy·bᵀ and db = aᵀ·dy. MatMul throws a *LayoutError if the
// inner sizes differ.
func (a *Tensor) MatMul(b *Tensor) *Tensor {
	if a.NDim() == 0 || b.NDim() == 0 {
		refuse("MatMul", "an operand has no dimensions", "use Mul", operand("a", a), operand("b", b))
	}
	x, y := a, b
	if a.NDim() == 1 {
		x = a.Reshape(1, a.Dim(0))
	}
	if b.NDim() == 1 {
		y = b.Reshape(b.Dim(0), 1)
	}
	out := matmul(x, y, false, false)
	if Tracked(x, y) {
		in := [2]*Tensor{x, y}
		out.record("MatMul", func(gy *Tensor) {
			if x.node != nil {
				x.accumulate(matmul(gy, in[1], false, true).sumTo(x.spec.shape))
			}
			if y.node != nil {
				y.accumulate(matmul(in[0], gy, true, false).sumTo(y.spec.shape))
			}
		})
	}
	if a.NDim() > 1 && b.NDim() > 1 {
		return out
	}
	shape := append([]int(nil), out.Shape()[:out.NDim()-2]...)
	if a.NDim() > 1 {
		shape = append(shape, x.Dim(-2))
	}
	if b.NDim() > 1 {
		shape = append(shape, y.Dim(-1))
	}
	return out.Reshape(shape...)
}

// matmul is the product of matrices, transposed on request. It is not recorded.
func matmul(a, b *Tensor, transA, transB bool) *Tensor {
	m := sameMesh("MatMul", a, b)
	key := ruleKey{op: "MatMul"}
	if transA {
		key.attr[0] = 1
	}
	if transB {
		key.attr[1] = 1
	}
	key.in[0], key.in[1] = a.spec, b.spec
	r := m.rule(key, 2, func() *form { return matmulForm(a, b, transA, transB) })
	a, b = a.to(r.in[0], "MatMul"), b.to(r.in[1], "MatMul")
	if m.outside() {
		return m.empty(r.out[0], a.DType())
	}
	return wrap(r.out[0], tensor.MatMul(a.local, b.local, transA, transB))
}

func matmulForm(a, b *Tensor, transA, transB bool) *form {
	rows, inner := a.Dim(-2), a.Dim(-1)
	other, cols := b.Dim(-2), b.Dim(-1)
	if transA {
		rows, inner = inner, rows
	}
	if transB {
		other, cols = cols, other
	}
	if inner != other {
		refuse("MatMul", fmt.Sprintf("inner sizes %d and %d differ", inner, other), "transpose or reshape one operand", operand("a", a), operand("b", b))
	}
	na, nb := a.NDim()-2, b.NDim()-2
	n := max(na, nb)
	const m, k, c = 1, 2, 3 // the letters of rows, inner and columns; the batch follows
	f := &form{linear: []linearRow{{0b01, linearOps}, {0b10, linearOps}}, contract: layout.Sum}
	la, lb, lo, shape := make([]letter, na), make([]letter, nb), make([]letter, n), make([]int, n)
	for i := 1; i <= n; i++ {
		x, y := 1, 1
		if i <= na {
			x = a.Shape()[na-i]
		}
		if i <= nb {
			y = b.Shape()[nb-i]
		}
		if x != y && x != 1 && y != 1 {
			refuse("MatMul", fmt.Sprintf("batch sizes %d and %d differ", x, y), "make them equal or one of them 1", operand("a", a), operand("b", b))
		}
		lo[n-i] = letter(3 + i)
		shape[n-i] = x
		if x == 1 {
			shape[n-i] = y
		}
		if i <= na && x == shape[n-i] {
			la[na-i] = lo[n-i]
		}
		if i <= nb && y == shape[n-i] {
			lb[nb-i] = lo[n-i]
		}
	}
	f.in = [][]letter{append(la, swapped(m, k, transA)...), append(lb, swapped(k, c, transB)...)}
	f.out = [][]letter{append(lo, m, c)}
	f.shapes = [][]int{append(shape, rows, cols)}
	return f
}

func swapped(x, y letter, swap bool) []letter {
	if swap {
		return []letter{y, x}
	}
	return []letter{x, y}
}

// Linear returns x·wᵀ + bias.
//
//	x [..., I]   w [O, I]   bias [O] or nil   →   [..., O]
//
//	x        w       bias     result
//	R        R       R        R
//	S(b)     R       R        S(b)      b any dimension of x but the last
//	R        S(0)    S(0)     S(last)   column-parallel
//	S(last)  S(1)    P(sum)   P(sum)    row-parallel: one rank adds the bias
//	P(sum)   R       P(sum)   P(sum)
//	R        P(sum)  P(sum)   P(sum)
//
// For anything else the cheapest row is chosen; a replicated bias becomes
// Partial without communication. The gradients are dx = dy·w, dw = dyᵀ·x and
// dbias = Σ dy over all but the last dimension. Linear throws a *LayoutError
// if the sizes do not fit.
func (x *Tensor) Linear(w, bias *Tensor) *Tensor {
	m := sameMesh("Linear", x, w)
	key := ruleKey{op: "Linear"}
	key.in[0], key.in[1] = x.spec, w.spec
	n := 2
	if bias != nil {
		sameMesh("Linear", x, bias)
		key.in[2], n = bias.spec, 3
	}
	r := m.rule(key, n, func() *form { return linearForm(x, w, bias) })
	a, b := x.to(r.in[0], "Linear"), w.to(r.in[1], "Linear")
	out := &Tensor{spec: r.out[0]}
	if m.outside() {
		out.local = m.empty(r.out[0], x.DType()).local
	} else {
		var c *tensor.Tensor
		if bias != nil {
			c = bias.to(r.in[2], "Linear").local
		}
		out.local = tensor.Linear(a.local, b.local, c)
	}
	if Tracked(x, w, bias) {
		out.record("Linear", func(gy *Tensor) {
			if a.node != nil {
				a.accumulate(matmul(gy, b, false, false))
			}
			if b.node != nil {
				b.accumulate(linearGrad(gy, a))
			}
			if bias != nil && bias.node != nil {
				bias.accumulate(gy.sumTo(bias.spec.shape))
			}
		})
	}
	return out
}

func linearForm(x, w, bias *Tensor) *form {
	ops := []Operand{operand("x", x), operand("w", w)}
	if w.NDim() != 2 || x.NDim() == 0 || x.Dim(-1) != w.Dim(1) {
		refuse("Linear", fmt.Sprintf("x %v and w %v are not [..., I] and [O, I]", x.Shape(), w.Shape()), "", ops...)
	}
	const o, i = 1, 2 // the letters of outputs and inputs; the dimensions of x before the last follow
	f := &form{linear: []linearRow{{0b101, linearOps & sumOnly}, {0b110, linearOps & sumOnly}}, contract: layout.Sum, addend: 0b100}
	var lead []letter
	for d := range x.NDim() - 1 {
		lead = append(lead, letter(3+d))
	}
	f.in = [][]letter{append(lead[:len(lead):len(lead)], i), {o, i}}
	f.out = [][]letter{append(lead[:len(lead):len(lead)], o)}
	f.shapes = [][]int{append(append([]int(nil), x.Shape()[:len(lead)]...), w.Dim(0))}
	if bias == nil {
		f.linear = []linearRow{{0b01, linearOps}, {0b10, linearOps}}
		return f
	}
	if bias.NDim() != 1 || bias.Dim(0) != w.Dim(0) {
		refuse("Linear", fmt.Sprintf("the bias has shape %v, w has %d outputs", bias.Shape(), w.Dim(0)), "", append(ops, operand("bias", bias))...)
	}
	f.in = append(f.in, []letter{o})
	return f
}

// linearGrad returns the gradient of w in Linear, dyᵀ·x over all rows:
//
//	dy [..., O]   x [..., I]   →   [O, I]
//
// A row dimension that both shard is contracted: the result is P(sum).
func linearGrad(dy, x *Tensor) *Tensor {
	m := dy.spec.mesh
	key := ruleKey{op: "LinearGrad"}
	key.in[0], key.in[1] = dy.spec, x.spec
	r := m.rule(key, 2, func() *form {
		const o, i = 1, 2
		var lead []letter
		for d := range x.NDim() - 1 {
			lead = append(lead, letter(3+d))
		}
		return &form{
			in:     [][]letter{append(lead[:len(lead):len(lead)], o), append(lead[:len(lead):len(lead)], i)},
			out:    [][]letter{{o, i}},
			shapes: [][]int{{dy.Dim(-1), x.Dim(-1)}}, contract: layout.Sum,
			linear: []linearRow{{0b01, linearOps}, {0b10, linearOps}},
		}
	})
	dy, x = dy.to(r.in[0], "LinearGrad"), x.to(r.in[1], "LinearGrad")
	if m.outside() {
		return m.empty(r.out[0], x.DType())
	}
	return wrap(r.out[0], tensor.MatMul(rows(dy.local), rows(x.local), true, false))
}

// rows returns t as a matrix of its last dimension's rows.
func rows(t *tensor.Tensor) *tensor.Tensor {
	last := t.Dim(-1)
	return t.Reshape(t.Numel()/max(last, 1), last)
}
