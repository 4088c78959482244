package cpu

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/gemm"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// MatMul computes g for each index of l. The strides A and B of l count matrices of a and
// b; the matrices of dst follow each other.
func (c *own) MatMul(dt dtype.DType, g kernel.Gemm, dst, a, b unsafe.Pointer, l kernel.Loop) {
	switch {
	case c.pairwise && dt == dtype.Float32:
		gemms(g, dst, a, b, &l, gemm.BatchPairwise[float32])
	case c.pairwise && dt == dtype.Float64:
		gemms(g, dst, a, b, &l, gemm.BatchPairwise[float64])
	case c.pairwise && g.Wide:
		gemms(g, dst, a, b, &l, gemm.BatchBF16Pairwise[float32])
	case c.pairwise:
		gemms(g, dst, a, b, &l, gemm.BatchBF16Pairwise[dtype.BF16])
	case dt == dtype.Float32:
		gemms(g, dst, a, b, &l, gemm.Batch[float32])
	case dt == dtype.Float64:
		gemms(g, dst, a, b, &l, gemm.Batch[float64])
	case g.Wide:
		gemms(g, dst, a, b, &l, gemm.BatchBF16[float32])
	default:
		gemms(g, dst, a, b, &l, gemm.BatchBF16[dtype.BF16])
	}
}

// gemms calls batch, a function of package gemm, for each run of the last dimension of
// l. E is the type of a and b, C that of dst, and T that of alpha and beta.
func gemms[T float, E, C any](g kernel.Gemm, dst, a, b unsafe.Pointer, l *kernel.Loop,
	batch func(count int, transA, transB bool, m, n, k int, alpha T, a []E, lda, strideA int, b []E, ldb, strideB int, beta T, c []C, ldc,
		strideC int)) {
	mn, mk, kn := g.M*g.N, g.M*g.K, g.K*g.N
	lda, ldb := g.K, g.N
	if g.TransA {
		lda = g.M
	}
	if g.TransB {
		ldb = g.K
	}
	var beta T
	if g.Accumulate {
		beta = 1
	}
	n, sa, sb := l.Size[l.N-1], l.A[l.N-1]*mk, l.B[l.N-1]*kn
	eachRun(l, func(i, ia, ib, _ int) {
		batch(n, g.TransA, g.TransB, g.M, g.N, g.K,
			1, unsafe.Slice(at[E](a, ia*mk), (n-1)*sa+mk), lda, sa,
			unsafe.Slice(at[E](b, ib*kn), (n-1)*sb+kn), ldb, sb,
			beta, unsafe.Slice(at[C](dst, i*mn), n*mn), g.N, mn)
	})
}
