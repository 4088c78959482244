package tensor

import (
	"math"
	"runtime"
)

// Attention returns softmax(q·kᵀ/√D)·v for each batch and head, and the logarithm
// of each softmax's denominator, which AttentionGrad needs.
//
//	q [B, H, T, D]   k [B, H, S, D]   v [B, H, S, E]   →   y [B, H, T, E]   lse [B, H, T]
//
// With causal, query i attends to keys 0 to i only. No more than a tile of the
// [T, S] weights exists at any time.
func Attention(q, k, v *Tensor, causal bool) (y, lse *Tensor) {
	a := attentionOf("Attention", q, k, v, causal)
	y = alloc("Attention", q.dev, q.dtype, []int{q.dims[0], q.dims[1], a.T, a.E})
	lse = alloc("Attention", q.dev, q.dtype, []int{q.dims[0], q.dims[1], a.T})
	q.dev.Attention(q.dtype, a, y.addr, lse.addr, q.ptr("Attention"), k.ptr("Attention"), v.ptr("Attention"))
	runtime.KeepAlive(q)
	runtime.KeepAlive(k)
	runtime.KeepAlive(v)
	return y, lse
}

// AttentionGrad returns the gradients of Attention(q, k, v, causal) = y, lse. The
// weights are computed again, tile by tile. With P the weights and S = q·kᵀ/√D,
//
//	dv = Pᵀ·dy   dP = dy·vᵀ   dS = P·(dP - Σ dy·y)   dq = dS·k/√D   dk = dSᵀ·q/√D
func AttentionGrad(dy, q, k, v, y, lse *Tensor, causal bool) (dq, dk, dv *Tensor) {
	a := attentionOf("AttentionGrad", q, k, v, causal)
	wantSameType("AttentionGrad", q, dy)
	wantSameType("AttentionGrad", q, y)
	wantSameType("AttentionGrad", q, lse)
	wantSameShape("AttentionGrad", dy, y)
	if y.numel != a.Heads*a.T*a.E || lse.numel != a.Heads*a.T {
		throwShape("AttentionGrad", "y %v and lse %v are not those of q %v and v %v", y.brief(), lse.brief(), q.brief(), v.brief())
	}
	dq, dk, dv = allocLike("AttentionGrad", q), allocLike("AttentionGrad", k), allocLike("AttentionGrad", v)
	q.dev.AttentionGrad(q.dtype, a, dq.addr, dk.addr, dv.addr, dy.ptr("AttentionGrad"),
		q.ptr("AttentionGrad"), k.ptr("AttentionGrad"), v.ptr("AttentionGrad"), y.ptr("AttentionGrad"), lse.ptr("AttentionGrad"))
	for _, t := range []*Tensor{dy, q, k, v, y, lse} {
		runtime.KeepAlive(t)
	}
	return dq, dk, dv
}

// An AttentionSize is the geometry of attention: Heads is batch times heads.
type AttentionSize struct {
	Heads, T, S, D, E int
	Scale             float64 // 1/√D
	Causal            bool
}

func attentionOf(op string, q, k, v *Tensor, causal bool) AttentionSize {
	wantFloat(op, q)
	wantSameType(op, q, k)
	wantSameType(op, q, v)
	if q.ndim != 4 || k.ndim != 4 || v.ndim != 4 ||
		q.dims[0] != k.dims[0] || q.dims[0] != v.dims[0] || q.dims[1] != k.dims[1] || q.dims[1] != v.dims[1] ||
		q.dims[3] != k.dims[3] || k.dims[2] != v.dims[2] {
		throwShape(op, "q %v, k %v, v %v: want [B H T D], [B H S D] and [B H S E]", q.brief(), k.brief(), v.brief())
	}
	return AttentionSize{
		Heads: q.dims[0] * q.dims[1], T: q.dims[2], S: k.dims[2], D: q.dims[3], E: v.dims[3],
		Scale: 1 / math.Sqrt(float64(max(q.dims[3], 1))), Causal: causal,
	}
}
