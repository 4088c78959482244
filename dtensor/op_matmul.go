package dtensor

import (
	"fmt"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/ints"
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
//	P(sum)  R       P(sum)   if a has at least the size of the result
//	R       P(sum)  P(sum)   if b has
//
// and a batch dimension that both have may be sharded in both. For any other
// pair the cheapest row is chosen and the operands are redistributed to it. The
// gradients are da = dy·bᵀ and db = aᵀ·dy. MatMul throws a *LayoutError if the
// inner sizes differ.
func (a *Tensor) MatMul(b *Tensor) *Tensor {
	defer a.spec.mesh.Span("MatMul").End()
	switch {
	case a.NDim() == 0 || b.NDim() == 0:
		refuse("MatMul", "an operand has no dimensions", "use Mul", operand("a", a), operand("b", b))
	case a.Dim(-1) != b.Dim(max(-2, -b.NDim())):
		refuse("MatMul", fmt.Sprintf("the last size of a is %d, and b has %d rows", a.Dim(-1), b.Dim(max(-2, -b.NDim()))),
			"make them equal; Transpose(-2, -1) turns a matrix", operand("a", a), operand("b", b))
	case b.NDim() == 1:
		return a.MatMul(b.Unsqueeze(1)).Squeeze(-1)
	case a.NDim() == 1:
		return a.Unsqueeze(0).MatMul(b).Squeeze(-2)
	}
	return multiply(a, b, false, false)
}

// multiply is the product of matrices, transposed on request.
func multiply(a, b *Tensor, transA, transB bool) *Tensor {
	out := matmul(a, b, transA, transB)
	if Tracked(a, b) {
		out.recordProduct("MatMul", func(gy *Tensor) {
			if a.takes() {
				ga := (*Tensor)(nil)
				if transA {
					ga = multiply(b, gy, transB, true)
				} else {
					ga = multiply(gy, b, false, !transB)
				}
				a.accumulate(ga.sumTo(a.spec.shape))
			}
			if b.takes() {
				gb := (*Tensor)(nil)
				if transB {
					gb = multiply(gy, a, true, transA)
				} else {
					gb = multiply(a, gy, !transA, false)
				}
				b.accumulate(gb.sumTo(b.spec.shape))
			}
		})
	}
	return out
}

// matmul is multiply that is not recorded.
func matmul(a, b *Tensor, transA, transB bool) *Tensor {
	if a.DType() != b.DType() {
		sameType("MatMul", a, b)
	}
	m, form := a.spec.mesh, 0
	if transA {
		form |= 1
	}
	if transB {
		form |= 2
	}
	key := ruleKey{op: "MatMul", attr: [3]int{form}, nodes: m.inNodes([]*Tensor{a, b})}
	key.in[0], key.in[1] = a.spec, b.spec
	r := m.rules.get(key.slot(), &key)
	if r == nil {
		r = matmulRule(key, a, b)
	}
	a, b = a.to(r.in[0], "MatMul"), b.to(r.in[1], "MatMul")
	if m.outside() {
		return m.empty(r.out[0], a.DType())
	}
	facts := a.Facts()*31 ^ b.Facts()
	out := wrap(r.out[0], r.product(a.local, b.local, transA, transB, reason{cause: "MatMul", facts: facts})).of(facts).ofType(a.DType())
	out.made("MatMul", a, b)
	return out
}

// matmulRule makes the rule of a product.
func matmulRule(key ruleKey, a, b *Tensor) *rule {
	return sameMesh(key.op, a, b).rule(key, func() (*layout.Rule, error) {
		return layout.Contraction(key.op, matmulForms[key.attr[0]], [][]int{a.spec.shape, b.spec.shape})
	}, a, b)
}

// product multiplies the local matrices. Nodes of the result are not rounded; those that are not one of each rank are
// added up.
func (r *rule) product(a, b *tensor.Tensor, transA, transB bool, why reason) *tensor.Tensor {
	s, dt := r.out[0], a.DType()
	switch {
	case r.nodes == nil && (s.nodes() == 0 || !dt.Narrow()):
		c := tensor.MatMul(a, b, transA, transB)
		s.mesh.eng.products.product(why.cause, s, a, b, nil, c, transA, transB)
		return c
	case r.nodes == nil:
		dst := tensor.New(s.mesh.eng.dev, dt.Wide(), s.local...)
		tensor.MatMulTo(dst, a, b, transA, transB, false)
		s.mesh.eng.products.product(why.cause, s, a, b, nil, dst, transA, transB)
		return dst
	}
	mine, dimA, dimB := r.nodes[s.mesh.Coord()[r.along]], a.NDim()-1, b.NDim()-2
	if transA {
		dimA--
	}
	if transB {
		dimB++
	}
	nodes, at := tensor.New(s.mesh.eng.dev, dt.Wide(), append([]int{len(mine)}, s.local...)...), 0
	defer nodes.Free()
	turn := s.mesh.eng.products.turn(len(mine))
	if turn >= len(mine) { // the rank has no node, and nothing to put aside
		s.mesh.eng.products.product(why.cause, s, a, b, nil, nil, transA, transB)
	}
	for i, leaves := range mine {
		n := a.Dim(dimA) / ints.Sum(mine) * leaves
		dst, partA, partB := tensor.Narrow(nodes, 0, i, 1).Reshape(s.local...), tensor.Narrow(a, dimA, at, n), tensor.Narrow(b, dimB, at, n)
		tensor.MatMulTo(dst, partA, partB, transA, transB, false)
		if i == turn {
			s.mesh.eng.products.product(why.cause, s, partA, partB, nil, dst, transA, transB)
		}
		at += n
	}
	return s.mesh.sumNodes(s.mesh.groupOf(1<<r.along), nodes, r.nodes, why, s.local)
}

// matmulForms are the products of a and b, of aᵀ and b, a and bᵀ, aᵀ and bᵀ.
var matmulForms = [...]string{"...mk,...kn->...mn", "...km,...kn->...mn", "...mk,...nk->...mn", "...km,...nk->...mn"}

// Linear returns x·wᵀ + bias.
//
//	x [..., I]   w [O, I]   bias [O] or nil   →   [..., O]
//
//	x        w       bias     result
//	R        R       R        R
//	S(b)     R       R        S(b)      b any dimension of x but the last
//	R        S(0)    S(0)     S(last)   column-parallel
//	S(last)  S(1)    P(sum)   P(sum)    row-parallel: one rank adds the bias
//	P(sum)   R       P(sum)   P(sum)    if x has at least the size of the result
//	R        P(sum)  P(sum)   P(sum)    if w has
//
// For anything else the cheapest row is chosen; a replicated bias becomes
// Partial without communication. The gradients are dx = dy·w, dw = dyᵀ·x and
// dbias = Σ dy over all but the last dimension. Linear throws a *LayoutError
// if the sizes do not fit.
func (x *Tensor) Linear(w, bias *Tensor) *Tensor {
	defer x.spec.mesh.Span("Linear").End()
	in := [...]*Tensor{x, w, bias}
	ts := in[:]
	if bias == nil {
		ts = in[:2]
	}
	m := sameMesh("Linear", ts...)
	sameType("Linear", ts...)
	if w.NDim() != 2 {
		refuse("Linear", fmt.Sprintf("the weight has the shape %v", w.Shape()), "give [out, in]", operand("x", x), operand("w", w))
	}
	if x.NDim() > 0 && x.Dim(-1) != w.Dim(1) {
		refuse("Linear", fmt.Sprintf("x has %d features, and the weight takes %d", x.Dim(-1), w.Dim(1)),
			"make them equal; the weight is [out, in]", operand("x", x), operand("w", w))
	}
	if m.eng.same {
		w = w.outputsAtLeaves(x)
		in[1] = w
	}
	r := m.rule(keyOf("Linear", ts...), func() (*layout.Rule, error) { return linearRule(x, w, bias) }, ts...)
	if bias != nil && m.eng.same && (x.shards(x.NDim()-1) || w.shards(1)) {
		nodes := m.rule(keyOf("Linear", x, w), func() (*layout.Rule, error) { return linearRule(x, w, nil) }, x, w)
		if nodes.out[0].nodes() != 0 || nodes.nodes != nil {
			r = nodes
		}
	}
	a, b := x.to(r.in[0], "Linear"), w.to(r.in[1], "Linear")
	facts := a.Facts()*31 ^ b.Facts()
	out := (&Tensor{spec: r.out[0]}).of(facts)
	switch {
	case (r.out[0].nodes() != 0 || r.nodes != nil) && !m.outside():
		out.local = r.product(a.local, b.local, false, true, reason{cause: "Linear", facts: facts})
		if bias != nil { // it is added to the whole sum
			out = out.Reduced().Add(bias.Detach().widen())
		}
		out = out.ofType(x.DType())
	case m.outside():
		out.local = m.empty(r.out[0], x.DType()).local
	default:
		var c *tensor.Tensor
		if bias != nil {
			c = bias.to(r.in[2], "Linear").local
		}
		out.local = tensor.Linear(a.local, b.local, c)
		m.eng.products.product("Linear", r.out[0], a.local, b.local, c, out.local, false, true)
	}
	out.made("Linear", a, b, bias)
	if Tracked(x, w, bias) {
		out.recordProduct("Linear", func(gy *Tensor) {
			if a.takes() {
				if a.NDim() == 1 {
					a.accumulate(multiply(gy.Unsqueeze(0), b, false, false).Squeeze(0))
				} else {
					a.accumulateProduct(out.node, gy, b)
				}
			}
			if b.takes() {
				var dw *Tensor
				if gy.again() {
					dw = multiply(gy.matrix(), a.matrix(), true, false)
				} else {
					dw, gy = linearGrad(gy, a)
				}
				b.accumulate(dw)
			}
			if bias.takes() {
				bias.accumulateSum(gy, gy.DType())
			}
		})
	}
	return out
}

func linearRule(x, w, bias *Tensor) (*layout.Rule, error) {
	shapes := [][]int{x.spec.shape, w.spec.shape}
	if bias == nil {
		return layout.Contraction("Linear", "...i,oi->...o", shapes)
	}
	if bias.NDim() != 1 || bias.Dim(0) != w.Dim(0) {
		return nil, fmt.Errorf("the bias has shape %v, the weight has %d outputs", bias.Shape(), w.Dim(0))
	}
	return layout.Contraction("Linear", "...i,oi->...o", shapes, bias.spec.shape)
}

// linearGrad returns the gradient of w in Linear, dyᵀ·x over all rows:
//
//	dy [..., O]   x [..., I]   →   [O, I]
//
// A row dimension that both shard is contracted: the result is P(sum), or P(nodes), which are
// float32 for narrow types. cut is dy in the layout in which its rows are cut at leaves, dy itself if they are not.
func linearGrad(dy, x *Tensor) (dw, cut *Tensor) {
	m := dy.spec.mesh
	r := m.rule(keyOf("LinearGrad", dy, x), func() (*layout.Rule, error) {
		return layout.Contraction("LinearGrad", "...o,...i->oi", [][]int{dy.spec.shape, x.spec.shape})
	}, dy, x)
	cut = dy
	dy, x = dy.to(r.in[0], "LinearGrad"), x.to(r.in[1], "LinearGrad")
	if r.nodes != nil {
		cut = dy
	}
	if m.outside() {
		return m.empty(r.out[0], x.DType()), cut
	}
	facts := dy.Facts()*31 ^ x.Facts()
	dw = wrap(r.out[0], r.product(rows(dy.local), rows(x.local), true, false, reason{cause: "LinearGrad", facts: facts})).of(facts)
	if r.nodes != nil {
		dw = dw.ofType(x.DType())
	}
	return dw, cut
}

// matrix returns t as a matrix of its last dimension's rows.
func (t *Tensor) matrix() *Tensor {
	last := t.NDim() - 1
	return t.Reshape(ints.Product(t.spec.shape[:last]), t.spec.shape[last])
}

// rows returns t as a matrix of its last dimension's rows.
func rows(t *tensor.Tensor) *tensor.Tensor {
	last := t.NDim() - 1
	return t.Reshape(ints.Product(t.Shape()[:last]), t.Dim(last))
}
