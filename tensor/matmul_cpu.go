package tensor

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/gemm"
)

// A Gemm is a product of contiguous matrices: C [M, N] = A [M, K]·B [K, N], added
// to C with Accumulate. With TransA the memory of A is [K, M], with TransB that of
// B is [N, K].
type Gemm struct {
	TransA, TransB bool
	Accumulate     bool
	M, N, K        int
}

// MatMul computes g for each index of l; the distances A and B of l count whole
// matrices of a and b, and those of c follow each other.
func (c *CPU) MatMul(dt DType, g Gemm, dst, a, b unsafe.Pointer, l Loop) {
	if dt == Float32 {
		gemms(g, (*float32)(dst), (*float32)(a), (*float32)(b), &l)
	} else {
		gemms(g, (*float64)(dst), (*float64)(a), (*float64)(b), &l)
	}
}

func gemms[T float](g Gemm, dst, a, b *T, l *Loop) {
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
	l.rows(func(i, ia, ib, _ int) {
		gemm.Batch(n, g.TransA, g.TransB, g.M, g.N, g.K,
			1, unsafe.Slice(at[T](unsafe.Pointer(a), ia*mk), (n-1)*sa+mk), lda, sa,
			unsafe.Slice(at[T](unsafe.Pointer(b), ib*kn), (n-1)*sb+kn), ldb, sb,
			beta, unsafe.Slice(at[T](unsafe.Pointer(dst), i*mn), n*mn), g.N, mn)
	})
}
