package cpu

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Float32 has a heap of its own, which finds what that of the other types finds, with ties, NaN, infinities and zeros of both signs.
func TestTopKOfFloat32(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	odd := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 0, float32(math.Copysign(0, -1)), 1, -1}
	for _, share := range []int{0, 1, 50, 100} { // percents of odd values
		for _, n := range []int{2, 3, 17, 100, 1000} {
			x, wide := make([]float32, 3*n), make([]float64, 3*n)
			for i := range x {
				if x[i] = float32(r.NormFloat64()); r.IntN(100) < share {
					x[i] = odd[r.IntN(len(odd))]
				}
				wide[i] = float64(x[i])
			}
			for _, k := range []int{2, 3, n / 3, n - 1, n} {
				if k < 2 || k > n {
					continue
				}
				got, at := make([]float32, 3*k), make([]int64, 3*k)
				want, wantAt := make([]float64, 3*k), make([]int64, 3*k)
				topK(got, at, x, n, k)
				topK(want, wantAt, wide, n, k)
				if !slices.Equal(at, wantAt) {
					t.Fatalf("%d of %d, %d %% odd: positions %v, want %v", k, n, share, at, wantAt)
				}
				for i, v := range got {
					if math.Float64bits(float64(v)) != math.Float64bits(want[i]) && v == v {
						t.Fatalf("%d of %d: %v, want %v", k, n, got, want)
					}
				}
			}
		}
	}
}
