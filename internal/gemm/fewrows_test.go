//go:build amd64

package gemm

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// TestFewRowsHaveTheBitsOfBlocks compares few with blocked for every number of rows, and
// for columns and sums that end within a vector and within a block, of float32 and of bfloat16.
func TestFewRowsHaveTheBitsOfBlocks(t *testing.T) {
	if simd.Best() == simd.Scalar {
		t.Skip("few rows are done apart with AVX2 only")
	}
	r := rand.New(rand.NewPCG(12, 12))
	done, halves := 0, 0
	for _, level := range levels()[1:] {
		kn := kernelFor(level, 4)
		for m := 1; m <= fewRows+1; m++ {
			for _, n := range []int{1, 15, 16, 17, 31, 32, 50, 64} {
				for _, k := range []int{1, 2, 3, 4, 5, 6, 7, 8, 11, 15, 16, 17, 31, 32, 33, 63, 64, blockK - 1, blockK, blockK + 3, 2*blockK + 21} {
					alpha, beta := float32(r.IntN(3))-1.5, float32(r.IntN(3))
					p := random(r, false, true, m, n, k, alpha, beta)
					if r.IntN(8) == 0 {
						p.a[r.IntN(len(p.a))], p.b[r.IntN(len(p.b))] = float32(math.Inf(1)), float32(math.NaN())
					}
					got, want := append([]float32(nil), p.c...), append([]float32(nil), p.c...)
					a, b := operand(false, p.a, p.lda), operand(true, p.b, p.ldb)
					if r.IntN(2) == 0 {
						x, w := make([]dtype.BF16, len(p.a)), make([]dtype.BF16, len(p.b))
						simd.ToBF16(x, p.a)
						simd.ToBF16(w, p.b)
						a, b = half(false, x, p.lda), half(true, w, p.ldb)
						halves++
					}
					blocked(kn, m, n, k, alpha, a, b, beta, operand(false, want, p.ldc), nil)
					if few(kn, m, n, k, alpha, a, b, beta, got, p.ldc) != (m <= fewRows && n >= fewCols) {
						t.Fatalf("%v: few rows and %d columns at least: %v", p, fewCols, m <= fewRows && n >= fewCols)
					} else if m > fewRows || n < fewCols {
						continue
					}
					done++
					for i := range got {
						if x, y := got[i], want[i]; math.Float32bits(x) != math.Float32bits(y) && (x == x || y == y) {
							t.Fatalf("%v: element (%d, %d) is %v, of blocks %v", p, i/p.ldc, i%p.ldc, x, y)
						}
					}
				}
			}
		}
	}
	if done == 0 || halves == 0 {
		t.Fatal("no product was compared")
	}
}
