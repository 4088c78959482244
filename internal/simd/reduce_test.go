package simd

import (
	"math"
	"math/rand/v2"
	"testing"
)

// near reports whether got is within tolerance of want, NaN being near NaN.
func near(got, want, tolerance float64) bool {
	return math.Abs(got-want) <= tolerance || got == want || got != got && want != want
}

// A sum in 64 lanes adds each element at most 64+6 times in float32 within a
// piece (4096/64 in a lane, 6 folds), so it is off by at most 71·2⁻²⁴·Σ|terms|
// (71: one more for the product), whatever the length.
const sumError = 71 * 0x1p-24

func TestSums(t *testing.T) {
	for _, l := range modes() {
		r := rand.New(rand.NewPCG(7, uint64(l.code())))
		for _, n := range append(lengths(), 100_000) {
			a, b := normals(r, n, 1), normals(r, n, 1)
			var sum, abs, dot, absDot, squares float64
			for i := range a {
				x, y := float64(a[i]), float64(b[i])
				sum, abs = sum+x, abs+math.Abs(x)
				dot, absDot = dot+x*y, absDot+math.Abs(x*y)
				squares += (x - 0.5) * (x - 0.5)
			}
			if got := l.sum(a); !near(got, sum, sumError*abs) {
				t.Errorf("%v: sum of %d is %v, want %v", l, n, got, sum)
			}
			if got := l.dot(a, b); !near(got, dot, sumError*absDot) {
				t.Errorf("%v: dot of %d is %v, want %v", l, n, got, dot)
			}
			if got := l.sumSquares(a, 0.5); !near(got, squares, 2*sumError*squares) {
				t.Errorf("%v: squares of %d are %v, want %v", l, n, got, squares)
			}
			product := 1.0
			for i, v := range a {
				b[i] = 1 + v/64
				product *= float64(b[i])
			}
			if got := l.product(b); !near(float64(got)/product, 1, float64(n)*0x1p-24) {
				t.Errorf("%v: product of %d is %v, want %v", l, n, got, product)
			}
			plain := Mode{Level: Scalar}
			if l.product(b) != plain.product(b) {
				t.Errorf("%v: the product of %d is %v, in plain Go %v", l, n, l.product(b), plain.product(b))
			}
			if l.sum(a) != plain.sum(a) || l.dot(a, b) != plain.dot(a, b) || l.sumSquares(a, 1) != plain.sumSquares(a, 1) {
				t.Errorf("%v: the sums of %d are %v, %v and %v, in plain Go %v, %v and %v", l, n, l.sum(a), l.dot(a, b), l.sumSquares(a, 1),
					plain.sum(a), plain.dot(a, b), plain.sumSquares(a, 1))
			}
		}
		for _, odd := range []float32{inf, -inf, nan} {
			x := normals(r, 77, 1)
			x[70] = odd
			if got := l.sum(x); !near(got, float64(odd), 0) {
				t.Errorf("%v: sum with %v is %v", l, odd, got)
			}
		}
	}
}

func TestMaxValueAndMinValue(t *testing.T) {
	for _, l := range modes() {
		r := rand.New(rand.NewPCG(8, uint64(l.code())))
		for _, n := range lengths() {
			x := normals(r, n, 1)
			for _, odd := range []float32{0, -9, 9, inf, -inf, nan} {
				if n > 0 {
					x[r.IntN(n)] = odd
				}
				wantMax, wantMin := -inf, inf
				for _, v := range x {
					wantMax, wantMin = max(wantMax, v), min(wantMin, v)
				}
				if got := l.maxValue(x); got != wantMax && (got == got || wantMax == wantMax) {
					t.Fatalf("%v: max of %d is %v, want %v", l, n, got, wantMax)
				}
				if got := l.minValue(x); got != wantMin && (got == got || wantMin == wantMin) {
					t.Fatalf("%v: min of %d is %v, want %v", l, n, got, wantMin)
				}
			}
		}
	}
}

// Of zeros of both signs, wherever they lie, 0 is the larger and -0 the smaller.
func TestLargestAndSmallestZero(t *testing.T) {
	zero, minus := float32(0), float32(math.Copysign(0, -1))
	for _, l := range modes() {
		for _, n := range []int{1, 7, 64, 65, chunk + 3} {
			for _, at := range []int{0, n / 2, n - 1} {
				down, up := make([]float32, n), make([]float32, n)
				l.fill(down, minus)
				if got := l.maxValue(down); !sameBits(got, minus) {
					t.Errorf("%v: the largest of %d times -0 is %v", l, n, got)
				}
				down[at], up[at] = zero, minus
				if got := l.maxValue(down); !sameBits(got, zero) {
					t.Errorf("%v: the largest of %d zeros, number %d not negative, is %v", l, n, at, got)
				}
				if got := l.minValue(up); !sameBits(got, minus) {
					t.Errorf("%v: the smallest of %d zeros, number %d negative, is %v", l, n, at, got)
				}
			}
		}
	}
}

func TestExportedReductions(t *testing.T) {
	x, y := []float32{1, -2, 4}, []float32{3, 5, -1}
	if s, d, q, m, n := Sum(x), Dot(x, y), SumSquares(x), MaxValue(x), MinValue(x); s != 3 || d != -11 || q != 21 || m != 4 || n != -2 {
		t.Errorf("Sum %v, Dot %v, SumSquares %v, MaxValue %v, MinValue %v of %v and %v", s, d, q, m, n, x, y)
	}
	if s, m, n := Sum(nil), MaxValue(nil), MinValue(nil); s != 0 || m != -inf || n != inf {
		t.Errorf("of nothing: Sum %v, MaxValue %v, MinValue %v", s, m, n)
	}
}

// TestSumShifted: large elements near each other lose nothing, at every level and
// length, with weights and without.
func TestSumShifted(t *testing.T) {
	for _, n := range append(lengths(), 3*piece+70) {
		x, w := make([]float32, n), make([]float32, n)
		var plain, weighted float64
		for i := range x {
			x[i], w[i] = 1e4-float32(i%7)/8, float32(i%5)
			plain += float64(x[i]) - 1e4
			weighted += (float64(x[i]) - 1e4) * float64(w[i])
		}
		for _, l := range modes() {
			if got := l.sumShifted(x, nil, 1e4); got != plain {
				t.Errorf("%v, %d elements: %v, want %v", l, n, got, plain)
			}
			if got := l.sumShifted(x, w, 1e4); got != weighted {
				t.Errorf("%v, %d elements with weights: %v, want %v", l, n, got, weighted)
			}
		}
	}
}

// TestLogSoftmaxOfLargeElements is as near as for small ones.
func TestLogSoftmaxOfLargeElements(t *testing.T) {
	x := []float32{1e4, 1e4, 1e4 - 1, -1e4}
	y := make([]float32, len(x))
	ordinary.LogSoftmaxRow(y, x)
	s := math.Log(2 + math.Exp(-1))
	for i, want := range []float64{-s, -s, -1 - s, -2e4 - s} {
		if !near(float64(y[i]), want, 2e-7*math.Abs(want)) {
			t.Errorf("%d: got %v, want %v", i, y[i], want)
		}
	}
}
