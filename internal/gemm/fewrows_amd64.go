package gemm

import "github.com/gorun-spmd/gorun/internal/simd"

// The most rows and the columns of a tile of few rows, as in the generator.
const (
	fewRows = 4
	fewCols = 16
)

// few does a product of float32 with few rows whose rows of op(A) and columns of op(B) are
// contiguous, as in a layer of a model that generates text token by token. It takes as long
// as reading B, which is not packed. The sums have the order of blocked, and so its bits.
// few reports whether it did the product; no size is 0.
func few[T Float](kn *kernel, m, n, k int, alpha T, a, b matrix[T], beta T, c []T, ldc int) bool {
	x, single := any(a.data).([]float32)
	if !single || kn.level == simd.Scalar || m > fewRows || n < fewCols || a.half != nil || b.half != nil || a.col != 1 || b.row != 1 {
		return false
	}
	w, y := any(b.data).([]float32), any(c).([]float32)
	whole := n / fewCols * fewCols
	for j := 0; j < whole; j += fewCols {
		beta := beta
		for p := 0; p < k; p += blockK {
			fewF32AVX2(m, min(blockK, k-p), &x[p], a.row*4, &w[j*b.col+p], b.col*4, &y[j], ldc*4, float32(alpha), float32(beta))
			beta = 1
		}
	}
	if whole < n {
		blocked(kn, m, n-whole, k, alpha, a, b.from(0, whole), beta, c[whole:], ldc)
	}
	return true
}
