package simd

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Every mode converts between float32 and float64 as Go does, tiny numbers, infinities and NaN among them, and writes nothing else.
func TestConvertFloat64(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	for _, m := range modes() {
		for _, n := range lengths() {
			narrow, wide := make([]float32, n+1), make([]float64, n+1)
			for i := range narrow {
				narrow[i] = math.Float32frombits(r.Uint32())
				wide[i] = math.Ldexp(r.Float64()-0.5, r.IntN(320)-160)
			}
			got, rounded := make([]float64, n+1), make([]float32, n+1)
			m.fromF32(got[:n], narrow[:n])
			m.toF32(rounded[:n], wide[:n])
			for i := range n {
				if v := float64(narrow[i]); got[i] != v && v == v || (got[i] != got[i]) != (v != v) {
					t.Fatalf("%v: %g is %g as float64", m, narrow[i], got[i])
				}
				if rounded[i] != float32(wide[i]) {
					t.Fatalf("%v: %g is %g as float32", m, wide[i], rounded[i])
				}
			}
			if got[n] != 0 || rounded[n] != 0 {
				t.Fatalf("%v: %d elements: wrote outside", m, n)
			}
		}
	}
}

// TestToInt32 compares the kernel with Go's conversion, of every exponent, NaN and the infinities.
func TestToInt32(t *testing.T) {
	x := append(special(), everywhere()...)
	x = append(x, 2147483520, 2147483648, -2147483648, -2147483904)
	got := make([]int32, len(x)+1)
	for _, m := range modes() {
		for _, n := range []int{0, 1, 15, 16, 17, 100, len(x)} {
			clear(got)
			m.toInt32(got[:n], x[len(x)-n:])
			m.Done()
			for i, v := range x[len(x)-n:] {
				if got[i] != int32(v) {
					t.Fatalf("%v: %g is %d, want %d", m, v, got[i], int32(v))
				}
			}
			if got[n] != 0 {
				t.Fatalf("%v: %d numbers: wrote outside", m, n)
			}
		}
	}
}
