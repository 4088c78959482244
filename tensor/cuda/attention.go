package cuda

import (
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// fuses reports whether the bfloat16 kernels of attention take size a and operands at these
// addresses: they read 8 elements at once, index the elements of a head in 32 bits, and know no room.
func fuses(a kernel.AttentionSize, at ...unsafe.Pointer) bool {
	for _, p := range at {
		if uintptr(p)%16 != 0 {
			return false
		}
	}
	return a.Room == a.S && min(a.D, a.E) > 0 && max(a.D, a.E) <= 128 && a.D%8 == 0 && a.E%8 == 0 && max(a.T, a.S)*max(a.D, a.E) < 1<<30 &&
		attentionBlocks(a, max(a.T, a.S)) < 1<<30
}

// attentionSizes is a Sizes of kernels/attention.cu.
type attentionSizes struct {
	heads, t, s, d, e, causal int32
	scale, scale2             float32
}

func sizesOf(a kernel.AttentionSize) attentionSizes {
	n := attentionSizes{int32(a.Heads), int32(a.T), int32(a.S), int32(a.D), int32(a.E), 0, float32(a.Scale), float32(a.Scale * math.Log2E)}
	if a.Causal {
		n.causal = 1
	}
	return n
}

// attentionBlocks is how many blocks n rows of each head take: a warp takes 16 rows, ROWS in
// kernels/attention.cu.
func attentionBlocks(a kernel.AttentionSize, n int) int {
	return a.Heads * ints.DivUp(n, threads/2)
}

// attentionBytes is how much memory the weights of a tile of queries may take.
const attentionBytes = 64 << 20

// attend calls f for each tile of queries, of all heads, with the number of keys that they
// attend to and memory for n tiles of weights.
func (g kernels) attend(dt tensor.DType, a kernel.AttentionSize, n int, f func(from, rows, keys int, room []unsafe.Pointer)) {
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

// Attention computes Y and LSE; see tensor's function of that name.
func (g kernels) Attention(a kernel.Attention) {
	dt, size := a.DType, a.AttentionSize
	g.attend(dt, size, 1, func(from, rows, keys int, room []unsafe.Pointer) {
		p := room[0]
		g.scores(dt, size, p, a.Q, a.K, a.D, from, rows, keys)
		g.typed("attend_rows", dt).ptr(p, a.LSE).i64(a.Heads, rows, keys, from, a.T).flag(a.Causal).f64(a.Scale).teams(a.Heads*rows, keys, held)
		g.multiply(dt, product{m: rows, n: a.E, k: keys, batch: a.Heads, alpha: 1,
			a: p, lda: keys, stepA: rows * keys, b: a.V, ldb: a.E, stepB: a.Room * a.E,
			c: unsafe.Add(a.Y, from*a.E*dt.Size()), ldc: a.E, stepC: a.T * a.E})
	})
}

// Attention is Widening's Attention, except for bfloat16 of sizes that tensor cores take.
func (g *Device) Attention(a kernel.Attention) {
	if a.DType != tensor.BFloat16 || !fuses(a.AttentionSize, a.Y, a.Q, a.K, a.V) {
		g.Widening.Attention(a)
		return
	}
	l := g.kernel("attend64_bf16")
	if max(a.D, a.E) > 64 {
		l = g.kernel("attend128_bf16")
	}
	put(l.ptr(a.Y, a.LSE, a.Q, a.K, a.V), sizesOf(a.AttentionSize)).blocks(attentionBlocks(a.AttentionSize, a.T))
}

// AttentionGrad is Widening's AttentionGrad, except for bfloat16 of sizes that tensor cores
// take.
func (g *Device) AttentionGrad(a kernel.AttentionGrad) {
	if a.DType != tensor.BFloat16 || !fuses(a.AttentionSize, a.DQ, a.DK, a.DV, a.DY, a.Q, a.K, a.V, a.Y) {
		g.Widening.AttentionGrad(a)
		return
	}
	size := a.AttentionSize
	buf := g.Scratch(a.Heads * a.T * tensor.Float32.Size())
	defer buf.Free()
	delta := buf.Block.Ptr()
	l := g.kernel("attend_grad_q64_bf16")
	if max(a.D, a.E) > 64 {
		l = g.kernel("attend_grad_q128_bf16")
	}
	put(l.ptr(a.DQ, delta, a.DY, a.Q, a.K, a.V, a.Y, a.LSE), sizesOf(size)).blocks(attentionBlocks(size, a.T))
	l = g.kernel("attend_grad_kv64_bf16")
	if max(a.D, a.E) > 64 {
		l = g.kernel("attend_grad_kv128_bf16")
	}
	put(l.ptr(a.DK, a.DV, a.DY, a.Q, a.K, a.V, delta, a.LSE), sizesOf(size)).blocks(attentionBlocks(size, a.S))
}

// scores computes p [heads, rows, keys] = x·wᵀ for rows from to from+rows of x
// [heads, T, width] and the first keys rows of w [heads, Room, width].
func (g kernels) scores(dt tensor.DType, a kernel.AttentionSize, p, x, w unsafe.Pointer, width, from, rows, keys int) {
	g.multiply(dt, product{transB: true, m: rows, n: keys, k: width, batch: a.Heads, alpha: 1,
		a: unsafe.Add(x, from*width*dt.Size()), lda: width, stepA: a.T * width, b: w, ldb: width, stepB: a.Room * width,
		c: p, ldc: keys, stepC: rows * keys})
}

// AttentionGrad computes DQ, DK and DV; see tensor's function of that name.
func (g kernels) AttentionGrad(a kernel.AttentionGrad) {
	dt, size := a.DType, a.DType.Size()
	g.clear(a.DK, a.Heads*a.S*a.D*size)
	g.clear(a.DV, a.Heads*a.S*a.E*size)
	g.attend(dt, a.AttentionSize, 2, func(from, rows, keys int, room []unsafe.Pointer) {
		p, dp := room[0], room[1]
		g.scores(dt, a.AttentionSize, p, a.Q, a.K, a.D, from, rows, keys)
		g.scores(dt, a.AttentionSize, dp, a.DY, a.V, a.E, from, rows, keys)
		g.typed("attend_grad_rows", dt).ptr(p, dp, a.LSE, a.DY, a.Y).i64(a.Heads, rows, keys, from, a.T,
			a.E).flag(a.Causal).f64(a.Scale).teams(a.Heads*rows, keys, held/2)
		// dv += Pᵀ·a.DY, dq = dS·k/√D, dk += dSᵀ·q/√D
		queries := func(x unsafe.Pointer, width int) unsafe.Pointer { return unsafe.Add(x, from*width*size) }
		g.multiply(dt, product{transA: true, m: keys, n: a.E, k: rows, batch: a.Heads, alpha: 1, beta: 1,
			a: p, lda: keys, stepA: rows * keys, b: queries(a.DY, a.E), ldb: a.E, stepB: a.T * a.E, c: a.DV, ldc: a.E, stepC: a.S * a.E})
		g.multiply(dt, product{m: rows, n: a.D, k: keys, batch: a.Heads, alpha: a.Scale,
			a: dp, lda: keys, stepA: rows * keys, b: a.K, ldb: a.D, stepB: a.S * a.D, c: queries(a.DQ, a.D), ldc: a.D, stepC: a.T * a.D})
		g.multiply(dt, product{transA: true, m: keys, n: a.D, k: rows, batch: a.Heads, alpha: a.Scale, beta: 1,
			a: dp, lda: keys, stepA: rows * keys, b: queries(a.Q, a.D), ldb: a.D, stepB: a.T * a.D, c: a.DK, ldc: a.D, stepC: a.S * a.D})
	})
}
