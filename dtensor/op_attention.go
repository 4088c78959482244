package dtensor

import (
	"fmt"
	"math"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// ScaledDotProductAttention returns softmax(q·kᵀ/√D)·v for each batch and head:
//
//	q [B, H, T, D]   k [B, H, S, D]   v [B, H, S, E]   →   [B, H, T, E]
//
// The dimensions before the last two may be any, and broadcast: keys and values
// [B, 1, S, D] are shared by all heads. With causal, query i attends to keys 0 to i
// only.
//
//	q        k, v     result
//	R        R        R
//	S(0)     S(0)     S(0)      batch
//	S(1)     S(1)     S(1)      heads
//	S(2), S(3), P, mixed        one of these rows, the cheapest
//
// The [T, S] weights are never stored; the gradient computes them again, tile
// by tile. On a GPU those of bfloat16 are rounded to it, as tensor.Attention says. It
// throws a *LayoutError if the sizes do not fit.
func ScaledDotProductAttention(q, k, v *Tensor, causal bool) *Tensor {
	defer q.spec.mesh.Span("ScaledDotProductAttention").End()
	const op = "ScaledDotProductAttention"
	m := sameMesh(op, q, k, v)
	sameType(op, q, k, v)
	if lead, four := attentionLead(op, q, k, v); !four {
		whole := func(t *Tensor) *Tensor { // [B, H, …], B being what comes before the heads
			t = t.Expand(append(slices.Clip(lead), t.spec.shape[t.NDim()-2:]...)...)
			for t.NDim() < 4 {
				t = t.Unsqueeze(-3)
			}
			return t.Flatten(0, t.NDim()-4)
		}
		out := ScaledDotProductAttention(whole(q), whole(k), whole(v), causal)
		return out.Reshape(append(slices.Clip(lead), out.spec.shape[2:]...)...)
	}
	r := m.rule(keyOf(op, q, k, v), func() (*layout.Rule, error) {
		return layout.Indexed(op, "bhqd,bhkd,bhke->bhqe", "qkde", q.spec.shape, k.spec.shape, v.spec.shape)
	}, q, k, v)
	a, b, c := q.to(r.in[0], op), k.to(r.in[1], op), v.to(r.in[2], op)
	out := &Tensor{spec: r.out[0]}
	var lse *tensor.Tensor
	if m.outside() {
		out.local = m.empty(r.out[0], q.DType()).local
	} else {
		out.local, lse = tensor.Attention(a.local, b.local, c.local, causal)
		m.eng.products.attention(op, out.spec, a.local, b.local, c.local, out.local, causal)
	}
	out.made(op, a, b, c)
	if Tracked(q, k, v) {
		y := out.Detach()
		out.recordComposed(op, func(gy *Tensor) {
			gy = gy.to(y.spec, op+"Grad")
			ga, gb, gc := wrap(a.spec, a.local), wrap(b.spec, b.local), wrap(c.spec, c.local)
			if !m.outside() {
				ga.local, gb.local, gc.local = tensor.AttentionGrad(gy.local, a.local, b.local, c.local, y.local, lse, causal)
				m.eng.products.attentionGrad([]*tensor.Tensor{gy.local, a.local, b.local, c.local, y.local, lse},
					[]*tensor.Tensor{ga.local, gb.local, gc.local}, []*spec{a.spec, b.spec, c.spec}, causal)
			}
			a.accumulate(ga)
			b.accumulate(gb)
			c.accumulate(gc)
		}, func() *Tensor { return composedAttention(a, b, c, causal) })
	}
	return out
}

// composedAttention is ScaledDotProductAttention by operators that can be differentiated twice. It makes the [T, S] weights.
func composedAttention(q, k, v *Tensor, causal bool) *Tensor {
	scores := multiply(q.widen(), k.widen(), false, true).Scale(1 / math.Sqrt(float64(q.Dim(-1))))
	if causal {
		m := q.spec.mesh
		query := Arange(m, tensor.Int64, 0, q.Dim(-2), m.Every(layout.Replicate())...).Unsqueeze(1)
		key := Arange(m, tensor.Int64, 0, k.Dim(-2), m.Every(layout.Replicate())...)
		scores = scores.MaskedFill(query.Compare(kernel.OpLt, key), math.Inf(-1))
	}
	return scores.Softmax(-1).MatMul(v.widen()).Cast(q.DType())
}

// attentionLead returns what the dimensions before the last two broadcast to, and
// whether the operands are [B, H, …] as they come. It throws if sizes do not fit.
func attentionLead(op string, q, k, v *Tensor) (lead []int, four bool) {
	s, t, u := q.spec.shape, k.spec.shape, v.spec.shape
	n, l, m := len(s)-2, len(t)-2, len(u)-2
	if min(n, l, m) < 0 || s[n+1] != t[l+1] || t[l] != u[m] {
		refuseAttention(op, q, k, v)
	}
	if n == 2 && l == 2 && m == 2 && slices.Equal(s[:2], t[:2]) && slices.Equal(s[:2], u[:2]) {
		return s[:2], true
	}
	together, err := layout.Pointwise(op, layout.Opaque, s[:n], t[:l], u[:m])
	if err != nil {
		refuseAttention(op, q, k, v)
	}
	return together.OutShape(0), false
}

func refuseAttention(op string, q, k, v *Tensor) {
	refuse(op, fmt.Sprintf("%v, %v and %v are not [B, H, T, D], [B, H, S, D] and [B, H, S, E]", q.Shape(), k.Shape(), v.Shape()),
		sharedHeads(q, k), operand("q", q), operand("k", k), operand("v", v))
}

// sharedHeads is the remedy where queries of several heads are to share one of the keys, PyTorch's enable_gqa; else "".
func sharedHeads(q, k *Tensor) string {
	if q.NDim() != 4 || k.NDim() != 4 || k.Dim(1) == 0 || q.Dim(1) == k.Dim(1) || q.Dim(1)%k.Dim(1) != 0 {
		return ""
	}
	return fmt.Sprintf("repeat the heads that queries share: k.RepeatInterleave(%d, 1), and v as well", q.Dim(1)/k.Dim(1))
}
