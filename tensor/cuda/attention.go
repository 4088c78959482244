package cuda

import (
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/tensor"
)

// fuses reports whether the kernels of bfloat16 take attention of size a between these
// addresses: they read 8 elements at once, and count those of a head in 32 bits.
func fuses(a tensor.AttentionSize, at ...unsafe.Pointer) bool {
	for _, p := range at {
		if uintptr(p)%16 != 0 {
			return false
		}
	}
	return min(a.D, a.E) > 0 && max(a.D, a.E) <= 128 && a.D%8 == 0 && a.E%8 == 0 && max(a.T, a.S)*max(a.D, a.E) < 1<<30 && attentionBlocks(a, max(a.T, a.S)) < 1<<30
}

// attentionSizes is a Sizes of kernels/attention.cu.
type attentionSizes struct {
	heads, t, s, d, e, causal int32
	scale, scale2             float32
}

func sizesOf(a tensor.AttentionSize) attentionSizes {
	n := attentionSizes{int32(a.Heads), int32(a.T), int32(a.S), int32(a.D), int32(a.E), 0, float32(a.Scale), float32(a.Scale * math.Log2E)}
	if a.Causal {
		n.causal = 1
	}
	return n
}

// attentionBlocks is how many blocks n rows of each head take: 16 a warp, ROWS in kernels/attention.cu.
func attentionBlocks(a tensor.AttentionSize, n int) int {
	return a.Heads * ((n + threads/2 - 1) / (threads / 2))
}

// attentionBytes is how much memory the weights of a tile of queries may take.
const attentionBytes = 64 << 20

// attend calls f for each tile of queries, of all heads, with the keys that they see
// and room for n tiles of weights.
func (g *Device) attend(dt tensor.DType, a tensor.AttentionSize, n int, f func(from, rows, keys int, room []unsafe.Pointer)) {
	if a.Heads == 0 || a.T == 0 {
		return
	}
	perQuery := a.Heads * max(a.S, 1) * dt.Size()
	tile := min(a.T, max(64, attentionBytes/perQuery))
	room := make([]unsafe.Pointer, n)
	for i := range room {
		buf := g.Scratch(tile * perQuery)
		defer buf.Free()
		room[i] = buf.Block.Ptr()
	}
	for from := 0; from < a.T; from += tile {
		rows, keys := min(tile, a.T-from), a.S
		if a.Causal {
			keys = min(from+rows, a.S)
		}
		f(from, rows, keys, room)
	}
}

// Attention computes y and lse; see tensor's function of that name.
func (g *Device) Attention(dt tensor.DType, a tensor.AttentionSize, y, lse, q, k, v unsafe.Pointer) bool {
	if dt == tensor.BFloat16 {
		if !fuses(a, y, q, k, v) {
			return false
		}
		l := g.kernel("attend64_bf16")
		if max(a.D, a.E) > 64 {
			l = g.kernel("attend128_bf16")
		}
		put(l.ptr(y, lse, q, k, v), sizesOf(a)).blocks(attentionBlocks(a, a.T))
		return true
	}
	g.attend(dt, a, 1, func(from, rows, keys int, room []unsafe.Pointer) {
		p := room[0]
		g.scores(dt, a, p, q, k, a.D, from, rows, keys)
		g.typed("attend_rows", dt).ptr(p, lse).i64(a.Heads, rows, keys, from, a.T).flag(a.Causal).f64(a.Scale).teams(a.Heads*rows, keys, held)
		g.multiply(dt, product{m: rows, n: a.E, k: keys, batch: a.Heads, alpha: 1,
			a: p, lda: keys, stepA: rows * keys, b: v, ldb: a.E, stepB: a.S * a.E,
			c: unsafe.Add(y, from*a.E*dt.Size()), ldc: a.E, stepC: a.T * a.E})
	})
	return true
}

// scores computes p [heads, rows, keys] = x·wᵀ for queries from on of x
// [heads, T, width] and w [heads, S, width].
func (g *Device) scores(dt tensor.DType, a tensor.AttentionSize, p, x, w unsafe.Pointer, width, from, rows, keys int) {
	g.multiply(dt, product{transB: true, m: rows, n: keys, k: width, batch: a.Heads, alpha: 1,
		a: unsafe.Add(x, from*width*dt.Size()), lda: width, stepA: a.T * width, b: w, ldb: width, stepB: a.S * width,
		c: p, ldc: keys, stepC: rows * keys})
}

// AttentionGrad computes dq, dk and dv; see tensor's function of that name.
func (g *Device) AttentionGrad(dt tensor.DType, a tensor.AttentionSize, dq, dk, dv, dy, q, k, v, y, lse unsafe.Pointer) bool {
	if dt == tensor.BFloat16 {
		if !fuses(a, dq, dk, dv, dy, q, k, v, y) {
			return false
		}
		buf := g.Scratch(a.Heads * a.T * tensor.Float32.Size())
		defer buf.Free()
		delta := buf.Block.Ptr()
		l := g.kernel("attend_grad_q64_bf16")
		if max(a.D, a.E) > 64 {
			l = g.kernel("attend_grad_q128_bf16")
		}
		put(l.ptr(dq, delta, dy, q, k, v, y, lse), sizesOf(a)).blocks(attentionBlocks(a, a.T))
		l = g.kernel("attend_grad_kv64_bf16")
		if max(a.D, a.E) > 64 {
			l = g.kernel("attend_grad_kv128_bf16")
		}
		put(l.ptr(dk, dv, dy, q, k, v, delta, lse), sizesOf(a)).blocks(attentionBlocks(a, a.S))
		return true
	}
	size := dt.Size()
	g.clear(dk, a.Heads*a.S*a.D*size)
	g.clear(dv, a.Heads*a.S*a.E*size)
	g.attend(dt, a, 2, func(from, rows, keys int, room []unsafe.Pointer) {
		p, dp := room[0], room[1]
		g.scores(dt, a, p, q, k, a.D, from, rows, keys)
		g.scores(dt, a, dp, dy, v, a.E, from, rows, keys)
		g.typed("attend_grad_rows", dt).ptr(p, dp, lse, dy, y).i64(a.Heads, rows, keys, from, a.T, a.E).flag(a.Causal).f64(a.Scale).teams(a.Heads*rows, keys, held/2)
		// dv += Pᵀ·dy, dq = dS·k/√D, dk += dSᵀ·q/√D
		queries := func(x unsafe.Pointer, width int) unsafe.Pointer { return unsafe.Add(x, from*width*size) }
		g.multiply(dt, product{transA: true, m: keys, n: a.E, k: rows, batch: a.Heads, alpha: 1, beta: 1,
			a: p, lda: keys, stepA: rows * keys, b: queries(dy, a.E), ldb: a.E, stepB: a.T * a.E, c: dv, ldc: a.E, stepC: a.S * a.E})
		g.multiply(dt, product{m: rows, n: a.D, k: keys, batch: a.Heads, alpha: a.Scale,
			a: dp, lda: keys, stepA: rows * keys, b: k, ldb: a.D, stepB: a.S * a.D, c: queries(dq, a.D), ldc: a.D, stepC: a.T * a.D})
		g.multiply(dt, product{transA: true, m: keys, n: a.D, k: rows, batch: a.Heads, alpha: a.Scale, beta: 1,
			a: dp, lda: keys, stepA: rows * keys, b: queries(q, a.D), ldb: a.D, stepB: a.T * a.D, c: dk, ldc: a.D, stepC: a.S * a.D})
	})
	return true
}
