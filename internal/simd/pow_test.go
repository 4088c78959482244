package simd

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestPow compares powers of numbers of every size, of those near 1 and of special values with math.Pow, and the bits of every
// mode with those of plain Go.
func TestPow(t *testing.T) {
	some := []float32{0, float32(math.Copysign(0, -1)), 1, -1, 2, -2, 3, -3, 0.5, -0.5, 2.5, inf, -inf, nan, 0x1p-149, -0x1p-149, 0x1p-126,
		math.MaxFloat32, -math.MaxFloat32, 1e10, 16777216, 16777215, -16777215, 0.99999994, 1.0000001, -0.99999994, 8388607.5, 1.4142135}
	var a, b []float32
	for _, v := range some {
		for _, w := range some {
			a, b = append(a, v), append(b, w)
		}
	}
	r := rand.New(rand.NewPCG(5, 5))
	n := 1_000_000
	if testing.Short() {
		n /= 10
	}
	for range n {
		v := float32(math.Exp(r.NormFloat64() * []float64{0.001, 0.3, 1, 20}[r.IntN(4)]))
		w := float32(r.NormFloat64() * 5)
		if r.IntN(2) == 0 { // a result anywhere between 0 and infinity
			w = float32((r.Float64()*280 - 152) / math.Log2(float64(v)))
		}
		if r.IntN(8) == 0 {
			v, w = -v, float32(math.Round(float64(w)))
		}
		a, b = append(a, v), append(b, w)
	}
	want, got := make([]float32, len(a)), make([]float32, len(a))
	Mode{Level: Scalar}.Pow(want, a, b)
	worst := 0.0
	for i := range a {
		exact := math.Pow(float64(a[i]), float64(b[i]))
		d := ulps(want[i], exact)
		worst = max(worst, d)
		if d > 2 || exact == 0 && math.Signbit(exact) != math.Signbit(float64(want[i])) {
			t.Fatalf("%g to the power %g is %g, want %g: off by %.2f ulp", a[i], b[i], want[i], exact, d)
		}
	}
	t.Logf("at most %.2f ulp", worst)
	for _, m := range modes() {
		m.Pow(got, a, b)
		for i := range a {
			if !sameBits(got[i], want[i]) {
				t.Fatalf("%v: %g to the power %g is %g, scalar %g", m, a[i], b[i], got[i], want[i])
			}
		}
		for _, v := range some {
			for _, swap := range []bool{false, true} {
				const n = 3000
				m.PowScalar(got[:n], a[:n], v, swap)
				for i, x := range a[:n] {
					x, y := x, v
					if swap {
						x, y = y, x
					}
					if !sameBits(got[i], pow(x, y)) {
						t.Fatalf("%v: %g to the power %g is %g, scalar %g", m, x, y, got[i], pow(x, y))
					}
				}
			}
		}
	}
}
