package cuda

import (
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// A product is c = alpha·a·b + beta·c for a batch of row-major matrices [m, k] and
// [k, n], whose rows are ld apart and which are step apart; a transposed one lies as
// [k, m] or [n, k].
type product struct {
	transA, transB      bool
	wide                bool // a and b are bfloat16, c is float32
	m, n, k, batch      int
	alpha, beta         float64
	a, b, c             unsafe.Pointer
	lda, ldb, ldc       int
	stepA, stepB, stepC int
}

// multiply carries out p.
func (g *Device) multiply(dt tensor.DType, p product) {
	if p.m == 0 || p.n == 0 || p.batch == 0 {
		return
	}
	if g.blas != nil && g.blas.takes(dt) && p.k > 0 && max(p.m, p.n, p.k, p.batch, p.lda, p.ldb, p.ldc) <= math.MaxInt32 {
		if err := g.blas.multiply(g, dt, &p); err != nil {
			fault.Throw(err)
		}
		return
	}
	type matrix struct{ step, row, col int }
	a, b := matrix{p.stepA, p.lda, 1}, matrix{p.stepB, p.ldb, 1}
	if p.transA {
		a.row, a.col = a.col, a.row
	}
	if p.transB {
		b.row, b.col = b.col, b.row
	}
	const side = 64
	l := g.typed("matmul", dt)
	if p.wide {
		l = g.kernel("matmul_bf16_f32")
	}
	put(put(l.ptr(p.c, p.a, p.b), a), b).i64(p.ldc, p.stepC, p.batch, p.m, p.n, p.k).float(dt, p.alpha).float(dt, p.beta).
		blocks(p.batch * ((p.m + side - 1) / side) * ((p.n + side - 1) / side))
}

// MatMul computes m for each index of l; the distances A and B of l count whole
// matrices of a and b, and those of c follow each other.
func (g *Device) MatMul(dt tensor.DType, m tensor.Gemm, dst, a, b unsafe.Pointer, l tensor.Loop) {
	mn, mk, kn := m.M*m.N, m.M*m.K, m.K*m.N
	p := product{
		transA: m.TransA, transB: m.TransB, wide: m.Wide, m: m.M, n: m.N, k: m.K, alpha: 1,
		lda: m.K, ldb: m.N, ldc: m.N, stepC: mn,
	}
	if m.TransA {
		p.lda = m.M
	}
	if m.TransB {
		p.ldb = m.K
	}
	if m.Accumulate {
		p.beta = 1
	}
	last := l.N - 1
	p.batch, p.stepA, p.stepB = l.Size[last], l.A[last]*mk, l.B[last]*kn
	size, dstSize := dt.Size(), dt.Size()
	if m.Wide {
		dstSize = tensor.Float32.Size()
	}
	eachRow(&l, func(i, ia, ib int) {
		p.c, p.a, p.b = unsafe.Add(dst, i*mn*dstSize), unsafe.Add(a, ia*mk*size), unsafe.Add(b, ib*kn*size)
		g.multiply(dt, p)
	})
}

// eachRow calls f for each run of the last dimension of l with the offsets of its
// first elements.
func eachRow(l *tensor.Loop, f func(i, a, b int)) {
	total := l.Numel()
	for i := 0; i < total; i += l.Size[l.N-1] {
		a, b := 0, 0
		for d, k := l.N-2, i/l.Size[l.N-1]; d >= 0; d-- {
			a, b = a+k%l.Size[d]*l.A[d], b+k%l.Size[d]*l.B[d]
			k /= l.Size[d]
		}
		f(i, a, b)
	}
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
func (g *Device) Attention(dt tensor.DType, a tensor.AttentionSize, y, lse, q, k, v unsafe.Pointer) {
	g.attend(dt, a, 1, func(from, rows, keys int, room []unsafe.Pointer) {
		p := room[0]
		g.scores(dt, a, p, q, k, a.D, from, rows, keys)
		g.typed("attend_rows", dt).ptr(p, lse).i64(a.Heads, rows, keys, from, a.T).flag(a.Causal).f64(a.Scale).blocks(a.Heads * rows)
		g.multiply(dt, product{m: rows, n: a.E, k: keys, batch: a.Heads, alpha: 1,
			a: p, lda: keys, stepA: rows * keys, b: v, ldb: a.E, stepB: a.S * a.E,
			c: unsafe.Add(y, from*a.E*dt.Size()), ldc: a.E, stepC: a.T * a.E})
	})
}

// scores computes p [heads, rows, keys] = x·wᵀ for queries from on of x
// [heads, T, width] and w [heads, S, width].
func (g *Device) scores(dt tensor.DType, a tensor.AttentionSize, p, x, w unsafe.Pointer, width, from, rows, keys int) {
	g.multiply(dt, product{transB: true, m: rows, n: keys, k: width, batch: a.Heads, alpha: 1,
		a: unsafe.Add(x, from*width*dt.Size()), lda: width, stepA: a.T * width, b: w, ldb: width, stepB: a.S * width,
		c: p, ldc: keys, stepC: rows * keys})
}

// AttentionGrad computes dq, dk and dv; see tensor's function of that name.
func (g *Device) AttentionGrad(dt tensor.DType, a tensor.AttentionSize, dq, dk, dv, dy, q, k, v, y, lse unsafe.Pointer) {
	size := dt.Size()
	g.clear(dk, a.Heads*a.S*a.D*size)
	g.clear(dv, a.Heads*a.S*a.E*size)
	g.attend(dt, a, 2, func(from, rows, keys int, room []unsafe.Pointer) {
		p, dp := room[0], room[1]
		g.scores(dt, a, p, q, k, a.D, from, rows, keys)
		g.scores(dt, a, dp, dy, v, a.E, from, rows, keys)
		g.typed("attend_grad_rows", dt).ptr(p, dp, lse, dy, y).i64(a.Heads, rows, keys, from, a.T, a.E).flag(a.Causal).f64(a.Scale).blocks(a.Heads * rows)
		// dv += Pᵀ·dy, dq = dS·k/√D, dk += dSᵀ·q/√D
		queries := func(x unsafe.Pointer, width int) unsafe.Pointer { return unsafe.Add(x, from*width*size) }
		g.multiply(dt, product{transA: true, m: keys, n: a.E, k: rows, batch: a.Heads, alpha: 1, beta: 1,
			a: p, lda: keys, stepA: rows * keys, b: queries(dy, a.E), ldb: a.E, stepB: a.T * a.E, c: dv, ldc: a.E, stepC: a.S * a.E})
		g.multiply(dt, product{m: rows, n: a.D, k: keys, batch: a.Heads, alpha: a.Scale,
			a: dp, lda: keys, stepA: rows * keys, b: k, ldb: a.D, stepB: a.S * a.D, c: queries(dq, a.D), ldc: a.D, stepC: a.T * a.D})
		g.multiply(dt, product{transA: true, m: keys, n: a.D, k: rows, batch: a.Heads, alpha: a.Scale, beta: 1,
			a: dp, lda: keys, stepA: rows * keys, b: queries(q, a.D), ldb: a.D, stepB: a.T * a.D, c: dk, ldc: a.D, stepC: a.S * a.D})
	})
}
