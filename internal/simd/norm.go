package simd

import "math"

// Moments returns the mean of x and its variance (the mean squared distance from the
// mean), in two passes; 0 and 0 for an empty x. The second pass measures from the mean
// rounded to float32, and corrects for that rounding. If the deviation is small beside the
// mean, a third pass corrects the mean for the rounding of its sum.
func Moments(x []float32) (mean, variance float64) { return ordinary.moments(x) }

func (m Mode) moments(x []float32) (mean, variance float64) {
	if len(x) == 0 {
		return 0, 0
	}
	n := float64(len(x))
	mean = m.sum(x) / n
	near := float32(mean)
	squares := m.sumSquares(x, near) / n
	if mean*mean > far*far*squares {
		mean = float64(near) + m.sumShifted(x, nil, near)/n
	}
	off := mean - float64(near)
	return mean, max(0, squares-off*off)
}

// A mean that is far or more deviations from 0 is measured again: the rounding error of a
// sum is in proportion to the mean, up to 71·2⁻²⁴ of it.
const far = 16

// Normalize does dst[i] = (x[i]-mean)·rstd·weight[i] + bias[i]. A nil weight
// stands for ones, a nil bias for zeros.
func (m Mode) Normalize(dst, x []float32, mean, rstd float64, weight, bias []float32) {
	same("Normalize", len(dst), len(x))
	sameOrNil("Normalize", len(dst), weight, bias)
	m.normalize(dst, x, inUnits(mean, rstd), weight, bias)
}

// units convert an element x of a row to h = (x-mean)·rstd + shift, its distance from the
// mean in units of the deviation. shift corrects for rounding the mean to float32, which
// may be much beside the deviation.
type units struct{ mean, rstd, shift float32 }

func inUnits(mean, rstd float64) units {
	near := float32(mean)
	return units{near, float32(rstd), float32((float64(near) - mean) * rstd)}
}

func (u units) of(x float32) float32 { return FMA(x-u.mean, u.rstd, u.shift) }

// sameOrNil is same for slices that may be nil.
func sameOrNil(op string, n int, slices ...[]float32) {
	for _, s := range slices {
		if s != nil {
			same(op, n, len(s))
		}
	}
}

func (m Mode) normalize(dst, x []float32, u units, weight, bias []float32) {
	if m.has(normalizeKernel) {
		for i := 0; i < len(dst); i += chunk {
			normalizeVec(m.code(), &dst[i], &x[i], at(weight, i), at(bias, i), min(chunk, len(dst)-i), u.mean, u.rstd, u.shift)
		}
		return
	}
	for i, v := range x {
		w, b := float32(1), float32(0)
		if weight != nil {
			w = weight[i]
		}
		if bias != nil {
			b = bias[i]
		}
		dst[i] = FMA(u.of(v), w, b)
	}
}

// LayerNormRow normalizes x by its own mean and variance:
// Normalize(dst, x, mean, rstd, weight, bias) with rstd = 1/√(variance+eps).
// It returns the mean and rstd, for the gradient.
func (m Mode) LayerNormRow(dst, x, weight, bias []float32, eps float64) (mean, rstd float64) {
	mean, variance := Moments(x)
	rstd = 1 / math.Sqrt(variance+eps)
	m.Normalize(dst, x, mean, rstd, weight, bias)
	return mean, rstd
}

// RMSNormRow does dst[i] = x[i]·rstd·weight[i] with rstd = 1/√(mean of x² + eps),
// which it returns. A nil weight stands for ones.
func (m Mode) RMSNormRow(dst, x, weight []float32, eps float64) (rstd float64) {
	n := float64(max(len(x), 1))
	rstd = 1 / math.Sqrt(SumSquares(x)/n+eps)
	m.Normalize(dst, x, 0, rstd, weight, nil)
	return rstd
}
