package simd

import "math"

// SoftmaxStats returns the largest element m of x and the sum of exp(x[i]-m),
// reading x from memory once. The statistics of parts combine: with
// m = max(m1, m2) the sum is s1·exp(m1-m) + s2·exp(m2-m).
// An empty x, or one of -Inf only, gives -Inf and 0; a NaN or +Inf gives NaN
// for the sum.
func SoftmaxStats(x []float32) (m, sum float32) {
	m = MaxValue(x)
	if m == float32(math.Inf(-1)) {
		return m, 0
	}
	var s float64
	for _, v := range x {
		s += math.Exp(float64(v - m))
	}
	return m, float32(s)
}

// LogSumExp returns ln Σ exp(x[i]); -Inf for an empty x.
func LogSumExp(x []float32) float32 {
	m, s := SoftmaxStats(x)
	return m + float32(math.Log(float64(s)))
}

// ScaledExp does dst[i] = scale·exp(x[i]-shift): the softmax of a row with its
// maximum as shift and 1/sum as scale, or the gradient of a cross-entropy with
// the log-sum-exp as shift.
func ScaledExp(dst, x []float32, shift, scale float32) {
	same("ScaledExp", len(dst), len(x))
	for i, v := range x {
		dst[i] = scale * exp(v-shift)
	}
}

// SoftmaxRow does dst[i] = exp(x[i]) / Σ exp(x[j]). A row of -Inf only gives NaN.
func SoftmaxRow(dst, x []float32) {
	m, s := SoftmaxStats(x)
	ScaledExp(dst, x, m, 1/s)
}

// SoftmaxGradRow does dst[i] = y[i]·(dy[i] - Σ y[j]·dy[j]), y the result of SoftmaxRow.
func SoftmaxGradRow(dst, y, dy []float32) {
	same("SoftmaxGradRow", len(dst), len(y), len(dy))
	d := Dot(y, dy)
	for i, v := range y {
		dst[i] = v * (dy[i] - d)
	}
}

// LogSoftmaxRow does dst[i] = x[i] - LogSumExp(x).
func LogSoftmaxRow(dst, x []float32) {
	m, s := SoftmaxStats(x)
	logSum := float32(math.Log(float64(s)))
	same("LogSoftmaxRow", len(dst), len(x))
	for i, v := range x {
		dst[i] = v - m - logSum
	}
}

// LogSoftmaxGradRow does dst[i] = dy[i] - exp(y[i])·Σ dy[j], y the result of LogSoftmaxRow.
func LogSoftmaxGradRow(dst, y, dy []float32) {
	same("LogSoftmaxGradRow", len(dst), len(y), len(dy))
	s := Sum(dy)
	for i, v := range y {
		dst[i] = dy[i] - exp(v)*s
	}
}
