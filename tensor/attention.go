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
// With causal, query i attends to keys 0 to i only. A query whose scores are all -Inf, or
// that has no key, gets zeros, as in PyTorch. No more than a tile of the
// [T, S] weights exists at any time. Beside bfloat16 lse is float32, and each element of y
// is rounded once: some heads at a time are computed with in float32. Only a GPU's tensor
// cores take bfloat16 as it is: there the weights are rounded too before they are
// multiplied by v, and P and dS below for the gradients' products; scores and sums are float32.
func Attention(q, k, v *Tensor, causal bool) (y, lse *Tensor) {
	a := attentionOf("Attention", q, k, v, causal)
	y = alloc("Attention", q.dev, q.dtype, []int{q.dims[0], q.dims[1], a.T, a.E})
	lse = alloc("Attention", q.dev, WideType(q.dtype), []int{q.dims[0], q.dims[1], a.T})
	if !q.dev.Attention(q.dtype, a, y.addr, lse.addr, q.ptr("Attention"), k.ptr("Attention"), v.ptr("Attention")) {
		a.wideHeads([]*Tensor{y, lse}, func(x []*Tensor) []*Tensor {
			y, lse := Attention(x[0], x[1], x[2], causal)
			return []*Tensor{y, lse}
		}, q, k, v)
	}
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
	wantWideType("AttentionGrad", q, lse)
	wantSameShape("AttentionGrad", dy, y)
	if y.numel != a.Heads*a.T*a.E || lse.numel != a.Heads*a.T {
		throwShape("AttentionGrad", "y %v and lse %v are not those of q %v and v %v", y.brief(), lse.brief(), q.brief(), v.brief())
	}
	dq, dk, dv = allocLike("AttentionGrad", q), allocLike("AttentionGrad", k), allocLike("AttentionGrad", v)
	if !q.dev.AttentionGrad(q.dtype, a, dq.addr, dk.addr, dv.addr, dy.ptr("AttentionGrad"),
		q.ptr("AttentionGrad"), k.ptr("AttentionGrad"), v.ptr("AttentionGrad"), y.ptr("AttentionGrad"), lse.ptr("AttentionGrad")) {
		a.wideHeads([]*Tensor{dq, dk, dv}, func(x []*Tensor) []*Tensor {
			dq, dk, dv := AttentionGrad(x[0], x[1], x[2], x[3], x[4], x[5], causal)
			return []*Tensor{dq, dk, dv}
		}, dy, q, k, v, y, lse)
	}
	for _, t := range []*Tensor{dy, q, k, v, y, lse} {
		runtime.KeepAlive(t)
	}
	return dq, dk, dv
}

// attentionPiece is about how many elements of bfloat16 attention widens at a time.
const attentionPiece = 1 << 21

// wideHeads computes results [B, H, …] from args: f computes some heads of them at a
// time, all as float32.
func (a *AttentionSize) wideHeads(results []*Tensor, f func(args []*Tensor) []*Tensor, args ...*Tensor) {
	step := max(1, attentionPiece/max(1, (a.T+a.S)*(a.D+a.E)))
	wide := make([]*Tensor, len(args))
	for lo := 0; lo < a.Heads; lo += step {
		n := min(step, a.Heads-lo)
		piece := func(x *Tensor) *Tensor { // [n, 1, …]
			shape := append([]int{a.Heads, 1}, x.Shape()[2:]...)
			return Narrow(x.Reshape(shape...), 0, lo, n)
		}
		for i, x := range args {
			wide[i] = Widen(piece(x))
		}
		for i, y := range f(wide) {
			CastTo(piece(results[i]), y)
			y.Free()
		}
		for i, x := range args {
			if x.dtype == BFloat16 { // else it is a view
				wide[i].Free()
			}
		}
	}
}

// An AttentionSize is the geometry of attention: Heads is batch times heads.
type AttentionSize struct {
	Heads, T, S, D, E int
	Scale             float64 // 1/√D
	Causal            bool
}

func attentionOf(op string, q, k, v *Tensor, causal bool) AttentionSize {
	wantFloatOrHalf(op, q)
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
