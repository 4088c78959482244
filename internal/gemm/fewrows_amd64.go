package gemm

import "github.com/gorun-spmd/gorun/internal/simd"

// The most rows and the columns of a tile of few rows, as in the generator.
const (
	fewRows = 4
	fewCols = 16
)

// few does a product in float32 with few rows whose rows of op(A) and columns of op(B) are
// contiguous, as in a layer of a model that generates text token by token. It takes as long
// as reading B, which is not packed; of bfloat16 it widens a block at a time. The sums have the
// order of blocked, and so its bits. few reports whether it did the product; no size is 0.
func few[T Float](kn *kernel, m, n, k int, alpha T, a, b matrix[T], beta T, c []T, ldc int) bool {
	y, single := any(c).([]float32)
	if !single || kn.level == simd.Scalar || kn.depth() == 2 || m > fewRows || n < fewCols || a.col != 1 || b.row != 1 {
		return false
	}
	x, w := any(a.data).([]float32), any(b.data).([]float32)
	rsa, ldw := a.row, b.col
	halves := b.half != nil
	if halves {
		pool := poolOf[T]()
		ws := pool.Get().(*workspace[T])
		defer pool.Put(ws)
		if x, w = any(ws.a[:]).([]float32), any(ws.b[:]).([]float32); m*k > len(x) {
			return false
		}
		simd.FromRowsBF16(x, k, a.half, a.row, m, k)
		rsa, ldw = k, blockK+16 // not a power of two, so that its rows do not compete for the same cache lines
	}
	whole := n / fewCols * fewCols
	for j := 0; j < whole; j += fewCols {
		beta := beta
		for p := 0; p < k; p += blockK {
			kb, at := min(blockK, k-p), j*ldw+p
			if halves {
				at = 0
				simd.FromRowsBF16(w, ldw, b.half[j*b.col+p:], b.col, fewCols, kb)
			}
			fewF32AVX2(m, kb, &x[p], rsa*4, &w[at], ldw*4, &y[j], ldc*4, float32(alpha), float32(beta))
			beta = 1
		}
	}
	if whole < n {
		blocked(kn, m, n-whole, k, alpha, a, b.from(0, whole), beta, c[whole:], ldc)
	}
	return true
}
