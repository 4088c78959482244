package gemm

import "github.com/gorun-spmd/gorun/internal/simd"

// few does a product in float32 with few rows whose rows of op(A) and columns of op(B) are
// contiguous, as in a layer of a model that generates text token by token. It takes as long
// as reading B, which is not packed; A of bfloat16 is widened. The sums have the
// order of blocked, and so its bits. few reports whether it did the product; no size is 0.
func few[T Float](kn *kernel, m, n, k int, alpha T, a, b matrix[T], beta T, c []T, ldc int) bool {
	y, single := any(c).([]float32)
	if !single || kn.level == simd.Scalar || kn.depth() == 2 || kn.likePairs || m > fewRows || n < fewCols || a.col != 1 || b.row != 1 {
		return false
	}
	x, rsa := any(a.data).([]float32), a.row
	if a.half != nil {
		pool := poolOf[T]()
		ws := pool.Get().(*workspace[T])
		defer pool.Put(ws)
		if x = any(ws.a[:]).([]float32); m*k > len(x) {
			return false
		}
		simd.FromRowsBF16(x, k, a.half, a.row, m, k)
		rsa = k
	}
	whole := n / fewCols * fewCols
	for j := 0; j < whole; j += fewCols {
		beta := beta
		for p := 0; p < k; p += blockK {
			kb, at := min(blockK, k-p), b.from(p, j)
			if at.half != nil {
				fewBF16AVX2(m, kb, &x[p], rsa*4, (*uint16)(&at.half[0]), b.col*2, &y[j], ldc*4, float32(alpha), float32(beta))
			} else {
				fewF32AVX2(m, kb, &x[p], rsa*4, &any(at.data).([]float32)[0], b.col*4, &y[j], ldc*4, float32(alpha), float32(beta))
			}
			beta = 1
		}
	}
	if whole < n {
		blocked(kn, m, n-whole, k, alpha, a, b.from(0, whole), beta, operand(false, c[whole:], ldc), nil)
	}
	return true
}
