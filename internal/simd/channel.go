package simd

// NormalizeBy does dst[i] = (x[i]-mean)·scale + bias.
func (m Mode) NormalizeBy(dst, x []float32, mean, scale, bias float64) {
	same("NormalizeBy", len(dst), len(x))
	u := inUnits(mean, scale)
	u.shift = float32((float64(u.mean)-mean)*scale + bias)
	m.normalize(dst, x, u, nil, nil)
}

// NormalizeSums returns the sums of dy[i] and of dy[i]·h[i], with h[i] = (x[i]-mean)·rstd.
func NormalizeSums(x, dy []float32, mean, rstd float64) (sum, sumH float32) {
	same("NormalizeSums", len(x), len(dy))
	return ordinary.normalizeGradSums(nil, nil, x, dy, nil, inUnits(mean, rstd))
}

// NormalizeGrad does dx[i] = rstd·(dy[i] - meanDY - h[i]·meanDYH), with h[i] = (x[i]-mean)·rstd.
func (m Mode) NormalizeGrad(dx, x, dy []float32, mean, rstd float64, meanDY, meanDYH float32) {
	same("NormalizeGrad", len(dx), len(x), len(dy))
	m.normalizeGrad(dx, x, dy, nil, inUnits(mean, rstd), meanDY, meanDYH)
}
