package tensor

import (
	"math"

	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Attention returns softmax(q·kᵀ/√D)·v for each batch and head, and lse, the logarithm
// of each softmax's denominator, for AttentionGrad.
//
//	q [B, H, T, D]   k [B, H, S, D]   v [B, H, S, E]   →   y [B, H, T, E]   lse [B, H, T]
//
// With causal, query i attends to keys 0 to i only. A query whose scores are all -Inf, or that has no
// key, gets zeros, as in PyTorch. The [T, S] weights are computed in tiles and never stored whole. The
// tensor cores of a GPU multiply bfloat16 directly: there the weights are also rounded before the
// product with v, and P and dS of AttentionGrad before theirs; scores and sums are float32.
func Attention(q, k, v *Tensor, causal bool) (y, lse *Tensor) {
	const op = "Attention"
	a := attentionOf(op, q, k, v, causal)
	y = alloc(op, q.dev, q.dtype, []int{q.dims[0], q.dims[1], a.T, a.E})
	lse = alloc(op, q.dev, q.dtype.Wide(), []int{q.dims[0], q.dims[1], a.T})
	a.Y, a.LSE, a.Q, a.K, a.V = y.addr, lse.addr, q.ptr(op), k.ptr(op), v.ptr(op)
	q.dev.Attention(a)
	keepAlive(q, k, v)
	return y, lse
}

// AttentionOver is Attention to the first s keys of k and v, which have room for more, without
// causal and lse: to keys that come one by one and are not copied for each.
//
//	q [B, H, T, D]   k [B, H, S, D]   v [B, H, S, E]   →   y [B, H, T, E]   0 ≤ s ≤ S
func AttentionOver(q, k, v *Tensor, s int) *Tensor {
	const op = "AttentionOver"
	a := attentionOf(op, q, k, v, false)
	if s < 0 || s > a.S {
		throwShape(op, "%d of %d keys", s, a.S)
	}
	a.S = s
	y := alloc(op, q.dev, q.dtype, []int{q.dims[0], q.dims[1], a.T, a.E})
	lse := alloc(op, q.dev, q.dtype.Wide(), []int{q.dims[0], q.dims[1], a.T})
	a.Y, a.LSE, a.Q, a.K, a.V = y.addr, lse.addr, q.ptr(op), k.ptr(op), v.ptr(op)
	q.dev.Attention(a)
	keepAlive(q, k, v)
	lse.Free()
	return y
}

// AttentionGrad returns the gradients of Attention(q, k, v, causal) = y, lse. It
// computes the weights again, tile by tile. With P the weights and S = q·kᵀ/√D,
//
//	dv = Pᵀ·dy   dP = dy·vᵀ   dS = P·(dP - Σ dy·y)   dq = dS·k/√D   dk = dSᵀ·q/√D
func AttentionGrad(dy, q, k, v, y, lse *Tensor, causal bool) (dq, dk, dv *Tensor) {
	const op = "AttentionGrad"
	a := attentionOf(op, q, k, v, causal)
	wantSameType(op, q, dy)
	wantSameType(op, q, y)
	wantWideType(op, q, lse)
	wantSameShape(op, dy, y)
	if y.numel != a.Heads*a.T*a.E || lse.numel != a.Heads*a.T {
		throwShape(op, "y %v and lse %v are not those of q %v and v %v", y.brief(), lse.brief(), q.brief(), v.brief())
	}
	dq, dk, dv = allocLike(op, q), allocLike(op, k), allocLike(op, v)
	a.Y, a.LSE = y.ptr(op), lse.ptr(op)
	a.Q, a.K, a.V = q.ptr(op), k.ptr(op), v.ptr(op)
	q.dev.AttentionGrad(kernel.AttentionGrad{Attention: a, DQ: dq.addr, DK: dk.addr, DV: dv.addr, DY: dy.ptr(op)})
	keepAlive(dy, q, k, v, y, lse)
	return dq, dk, dv
}

// attentionOf checks the operands and returns their sizes; the caller sets the addresses.
func attentionOf(op string, q, k, v *Tensor, causal bool) kernel.Attention {
	wantFloat(op, q)
	wantSameType(op, q, k)
	wantSameType(op, q, v)
	if q.ndim != 4 || k.ndim != 4 || v.ndim != 4 ||
		q.dims[0] != k.dims[0] || q.dims[0] != v.dims[0] || q.dims[1] != k.dims[1] || q.dims[1] != v.dims[1] ||
		q.dims[3] != k.dims[3] || k.dims[2] != v.dims[2] {
		throwShape(op, "q %v, k %v, v %v: want [B H T D], [B H S D] and [B H S E]", q.brief(), k.brief(), v.brief())
	}
	return kernel.Attention{DType: q.dtype, AttentionSize: kernel.AttentionSize{
		Heads: q.dims[0] * q.dims[1], T: q.dims[2], S: k.dims[2], Room: k.dims[2], D: q.dims[3], E: v.dims[3],
		Scale: 1 / math.Sqrt(float64(max(q.dims[3], 1))), Causal: causal,
	}}
}
