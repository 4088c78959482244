package simd

import "math"

// Moments returns the mean of x and its variance (the mean squared distance from
// the mean), in two passes; 0 and 0 for an empty x.
func Moments(x []float32) (mean, variance float32) {
	if len(x) == 0 {
		return 0, 0
	}
	mean = Sum(x) / float32(len(x))
	var s float64
	for _, v := range x {
		d := float64(v - mean)
		s += d * d
	}
	return mean, float32(s / float64(len(x)))
}

// Normalize does dst[i] = (x[i]-mean)·rstd·weight[i] + bias[i]. A nil weight
// stands for ones, a nil bias for zeros.
func Normalize(dst, x []float32, mean, rstd float32, weight, bias []float32) {
	same("Normalize", len(dst), len(x))
	for i, v := range x {
		h := (v - mean) * rstd
		if weight != nil {
			h *= weight[i]
		}
		if bias != nil {
			h += bias[i]
		}
		dst[i] = h
	}
}

// LayerNormRow normalizes x by its own mean and variance:
// Normalize(dst, x, mean, rstd, weight, bias) with rstd = 1/√(variance+eps).
// It returns what the gradient needs.
func LayerNormRow(dst, x, weight, bias []float32, eps float32) (mean, rstd float32) {
	mean, variance := Moments(x)
	rstd = float32(1 / math.Sqrt(float64(variance)+float64(eps)))
	Normalize(dst, x, mean, rstd, weight, bias)
	return mean, rstd
}

// LayerNormGradRow is the gradient of LayerNormRow for one row: with
// h[i] = (x[i]-mean)·rstd and g[i] = dy[i]·weight[i],
//
//	dweight[i] += dy[i]·h[i]
//	dbias[i]   += dy[i]
//	dx[i]       = rstd·(g[i] - mean of g - h[i]·mean of g·h)
//
// Any of weight (ones), dweight and dbias (not wanted) may be nil.
func LayerNormGradRow(dx, dweight, dbias, x, dy, weight []float32, mean, rstd float32) {
	sg, sgh := NormalizeGradSums(dweight, dbias, x, dy, weight, mean, rstd)
	n := float32(len(x))
	NormalizeGrad(dx, x, dy, weight, mean, rstd, sg/n, sgh/n)
}

// NormalizeGradSums returns Σ g[i] and Σ g[i]·h[i] and adds to dweight and
// dbias, as in LayerNormGradRow: the part of the gradient before the sums of
// several pieces of a row are joined.
func NormalizeGradSums(dweight, dbias, x, dy, weight []float32, mean, rstd float32) (sumG, sumGH float32) {
	same("NormalizeGradSums", len(x), len(dy))
	var a, b float64
	for i, v := range x {
		h, g := (v-mean)*rstd, dy[i]
		if dweight != nil {
			dweight[i] += g * h
		}
		if dbias != nil {
			dbias[i] += g
		}
		if weight != nil {
			g *= weight[i]
		}
		a += float64(g)
		b += float64(g) * float64(h)
	}
	return float32(a), float32(b)
}

// NormalizeGrad does dx[i] = rstd·(dy[i]·weight[i] - meanG - h[i]·meanGH), with
// h[i] = (x[i]-mean)·rstd. A nil weight stands for ones.
func NormalizeGrad(dx, x, dy, weight []float32, mean, rstd, meanG, meanGH float32) {
	same("NormalizeGrad", len(dx), len(x), len(dy))
	for i, v := range x {
		g := dy[i]
		if weight != nil {
			g *= weight[i]
		}
		dx[i] = rstd * (g - meanG - (v-mean)*rstd*meanGH)
	}
}

// RMSNormRow does dst[i] = x[i]·rstd·weight[i] with rstd = 1/√(mean of x² + eps),
// which it returns. A nil weight stands for ones.
func RMSNormRow(dst, x, weight []float32, eps float32) (rstd float32) {
	n := max(len(x), 1)
	rstd = float32(1 / math.Sqrt(SumSquares(x)/float64(n)+float64(eps)))
	Normalize(dst, x, 0, rstd, weight, nil)
	return rstd
}

// RMSNormGradRow is the gradient of RMSNormRow for one row: with h = x·rstd and
// g = dy·weight, dweight += dy·h and dx = rstd·(g - h·mean of g·h).
// Weight (ones) and dweight (not wanted) may be nil.
func RMSNormGradRow(dx, dweight, x, dy, weight []float32, rstd float32) {
	_, sgh := NormalizeGradSums(dweight, nil, x, dy, weight, 0, rstd)
	NormalizeGrad(dx, x, dy, weight, 0, rstd, 0, sgh/float32(len(x)))
}
