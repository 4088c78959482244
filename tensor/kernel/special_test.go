package kernel

import (
	"math"
	"testing"
)

// The values are PyTorch's of float64, except for those of trigamma, which has 9 digits there: they are π²/2+4 and
// what the recurrence makes of it.
func TestSpecialFunctions(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		name string
		f    func(float64) float64
		x, y float64
	}{
		{"lgamma", lgamma, -2.5, -0.05624371649767405}, {"lgamma", lgamma, 300, 1409.2020674704117}, {"lgamma", lgamma, -3, inf},
		{"digamma", digamma, -2.5, 1.1031566406452433}, {"digamma", digamma, -1e-3, 999.4211381978913},
		{"digamma", digamma, 1, -0.5772156649015328}, {"digamma", digamma, 26, 3.238742512851974}, {"digamma", digamma, 0, -inf},
		{"digamma", digamma, math.Copysign(0, -1), inf}, {"digamma", digamma, -3, math.NaN()},
		{"trigamma", trigamma, 0.5, math.Pi * math.Pi / 2}, {"trigamma", trigamma, -0.5, math.Pi*math.Pi/2 + 4},
		{"trigamma", trigamma, 1, math.Pi * math.Pi / 6}, {"trigamma", trigamma, 0, inf},
		{"I0", bessel0, 7.5, 268.1613115151893}, {"I0", bessel0, 25, 5774560606.4663105}, {"I0", bessel0, 26, 15388976705.660812},
		{"I0", bessel0, -300, 4.475847367935052e+128}, {"I0", bessel0, 0, 1}, {"I0", bessel0, -inf, inf},
		{"I1", bessel1, 7.5, 249.58436542268808}, {"I1", bessel1, 25, 5657865129.878702}, {"I1", bessel1, 26, 15090072642.341646},
		{"I1", bessel1, -300, -4.468381385036954e+128}, {"I1", bessel1, 0, 0}, {"I1", bessel1, -inf, -inf},
	} {
		y := c.f(c.x)
		if y != c.y && !(math.IsNaN(y) && math.IsNaN(c.y)) && !(math.Abs(y-c.y) <= 3e-14*math.Abs(c.y)) {
			t.Errorf("%s(%v) is %v, want %v", c.name, c.x, y, c.y)
		}
	}
}

// TestSpecialSlopes compares each function's derivative with its difference quotient, on both sides of where a function
// changes its series.
func TestSpecialSlopes(t *testing.T) {
	for _, c := range []struct {
		name     string
		f, slope func(float64) float64
		at       []float64
	}{
		{"lgamma", lgamma, digamma, []float64{-1.3, 0.2, 3, leastOfSeries - 0.01, leastOfSeries + 0.01, 40}},
		{"digamma", digamma, trigamma, []float64{-1.3, 0.2, 3, leastOfSeries - 0.01, leastOfSeries + 0.01, 40}},
		{"I0", bessel0, bessel1, []float64{-30, -1.3, 0.2, 3, leastOfBessel - 0.01, leastOfBessel + 0.01, 40}},
	} {
		for _, x := range c.at {
			h := 1e-5 * max(1, math.Abs(x))
			got := (c.f(x+h) - c.f(x-h)) / (2 * h)
			if want := c.slope(x); !(math.Abs(got-want) <= 1e-6*math.Abs(want)) {
				t.Errorf("the slope of %s at %v is %v, by its values %v", c.name, x, want, got)
			}
		}
	}
}
