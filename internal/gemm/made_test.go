package gemm

import (
	"math"
	"math/rand/v2"
	"testing"
)

// packed returns a Packer of a matrix [k, n].
func packed[T Float](n int, x []T) Packer[T] {
	return func(dst []T, width, p, j, rows, cols int) {
		for r := range rows {
			for c := range cols {
				dst[c/width*width*rows+r*width+c%width] = x[(p+r)*n+j+c]
			}
		}
	}
}

func testMade[T Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	numbers := func(n int) []T {
		x := make([]T, n)
		for i := range x {
			x[i] = T(rng.NormFloat64())
		}
		return x
	}
	for _, s := range [][3]int{{1, 1, 1}, {5, 7, 9}, {64, 49, 300}, {3, 30, 2}, {400, 70, 513}, {7, 1100, 20},
		{3, 4, 0}, {0, 2, 2}, {2, 0, 2}} {
		m, n, k := s[0], s[1], s[2]
		a, b := numbers(k*m), numbers(k*n)
		for _, beta := range []T{0, 1} {
			const ldc = 1200
			got := numbers(m * ldc)
			want := append([]T(nil), got...)
			Made(m, n, k, packed(m, a), packed(n, b), beta, got, ldc)
			Gemm(true, false, m, n, k, 1, a, m, b, n, beta, want, ldc)
			for i := range want {
				if math.Float64bits(float64(got[i])) != math.Float64bits(float64(want[i])) {
					t.Fatalf("%v, beta %v: element %d is %v, want %v", s, beta, i, got[i], want[i])
				}
			}
		}
	}
}

func TestMadeIsGemm(t *testing.T) {
	t.Run("float32", testMade[float32])
	t.Run("float64", testMade[float64])
}
