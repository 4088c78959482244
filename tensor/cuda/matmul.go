package cuda

import (
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// A product is c = alpha·a·b + beta·c for a batch of row-major matrices [m, k] and
// [k, n]. Rows are ld elements apart and matrices step; the memory of a transposed
// matrix is [k, m] or [n, k].
type product struct {
	transA, transB      bool
	wide                bool // a and b are bfloat16, c is float32
	m, n, k, batch      int
	alpha, beta         float64
	a, b, c             unsafe.Pointer
	lda, ldb, ldc       int
	stepA, stepB, stepC int
}

// multiply computes p, with cuBLAS if that takes it.
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
		blocks(p.batch * ints.DivUp(p.m, side) * ints.DivUp(p.n, side))
}

// MatMul computes m for each index of l. The strides A and B of l count matrices of a and
// b; the matrices of dst follow each other.
func (g kernels) MatMul(dt tensor.DType, m kernel.Gemm, dst, a, b unsafe.Pointer, l kernel.Loop) {
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
func eachRow(l *kernel.Loop, f func(i, a, b int)) {
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
