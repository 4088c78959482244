package simd

import "math"

// SoftmaxStats returns the largest element top of x and the sum of exp(x[i]-top),
// reading x from memory once. The statistics of parts combine: with
// m = max(m1, m2) the sum is s1·exp(m1-m) + s2·exp(m2-m).
// An empty x, or one of -Inf only, gives -Inf and 0; with a NaN or a +Inf in x
// the sum is NaN, and the maximum that of the numbers.
func SoftmaxStats(x []float32) (top, sum float32) { return ordinary.softmaxStats(x) }

// softmaxStats reads x by pieces, which stay in the first cache between the search for the
// maximum and the sum. A new maximum scales the sum so far.
func (m Mode) softmaxStats(x []float32) (top, sum float32) {
	top = float32(math.Inf(-1))
	var s float64
	for len(x) > 0 {
		p := x[:min(piece, len(x))]
		x = x[len(p):]
		if next := m.maxNumber(p); next > top {
			s *= math.Exp(float64(top) - float64(next))
			top = next
		}
		shift := top
		if shift == float32(math.Inf(-1)) {
			shift = 0 // adds 0, except for NaN
		}
		s += float64(m.sumExp(p, shift))
	}
	return top, float32(s)
}

// maxNumber returns the largest element of at most a piece and ignores NaN. It takes half
// the time of maxValue.
func (m Mode) maxNumber(x []float32) float32 {
	if m.has(maxNumberKernel) {
		return maxNumberVec(m.wide(), &x[0], len(x))
	}
	var tops [lanes]float32 // of zeros of both signs the first in its lane stays
	for i := range tops {
		tops[i] = float32(math.Inf(-1))
	}
	for i, v := range x {
		if v > tops[i%lanes] {
			tops[i%lanes] = v
		}
	}
	for w := lanes / 2; w > 0; w /= 2 {
		for i := range w {
			if tops[i+w] > tops[i] {
				tops[i] = tops[i+w]
			}
		}
	}
	return tops[0]
}

// sumExp returns the sum of exp(x[i]-shift) for at most a piece, whose elements are
// not above shift.
func (m Mode) sumExp(x []float32, shift float32) float32 {
	if m.has(sumExpKernel) {
		return sumExpVec(m.wide(), &x[0], len(x), shift)
	}
	var s [lanes]float32
	for i, v := range x {
		s[i%lanes] += exp(v - shift)
	}
	return fold(s[:])
}

// LogSumExp returns ln Σ exp(x[i]); -Inf for an empty x, NaN if any element is, else
// +Inf if any element is.
func LogSumExp(x []float32) float32 {
	top, s := SoftmaxStats(x)
	if top == float32(math.Inf(1)) {
		return MaxValue(x) // top, except for NaN
	}
	return float32(float64(top) + math.Log(float64(s)))
}

// ScaledExp does dst[i] = scale·exp(x[i]-shift): the softmax of a row with its
// maximum as shift and 1/sum as scale, or the gradient of a cross-entropy with
// the log-sum-exp as shift.
func (m Mode) ScaledExp(dst, x []float32, shift, scale float32) {
	same("ScaledExp", len(dst), len(x))
	m.scaledExp(dst, x, shift, scale)
}

func (m Mode) scaledExp(dst, x []float32, shift, scale float32) {
	if !m.has(scaledExpKernel) {
		for i, v := range x {
			dst[i] = exp(v-shift) * scale
		}
		return
	}
	for i := 0; i < len(dst); i += chunk {
		scaledExpVec(m.code(), &dst[i], &x[i], min(chunk, len(dst)-i), shift, scale)
	}
}

// SoftmaxRow does dst[i] = exp(x[i]) / Σ exp(x[j]). A row of -Inf only gives NaN.
func (m Mode) SoftmaxRow(dst, x []float32) {
	same("SoftmaxRow", len(dst), len(x))
	top, s := m.softmaxStats(x)
	m.scaledExp(dst, x, top, 1/s)
}

// SoftmaxGradRow does dst[i] = y[i]·(dy[i] - Σ y[j]·dy[j]), y the result of SoftmaxRow.
func (m Mode) SoftmaxGradRow(dst, y, dy []float32) {
	same("SoftmaxGradRow", len(dst), len(y), len(dy))
	m.softmaxGrad(dst, y, dy, Dot(y, dy))
}

func (m Mode) softmaxGrad(dst, y, dy []float32, dot float32) {
	if !m.has(softmaxGradKernel) {
		for i, v := range y {
			dst[i] = v * (dy[i] - dot)
		}
		return
	}
	for i := 0; i < len(dst); i += chunk {
		softmaxGradVec(m.code(), &dst[i], &y[i], &dy[i], min(chunk, len(dst)-i), dot)
	}
}

// LogSoftmaxRow does dst[i] = x[i] - LogSumExp(x).
func (m Mode) LogSoftmaxRow(dst, x []float32) {
	same("LogSoftmaxRow", len(dst), len(x))
	top, s := m.softmaxStats(x)
	shift := float32(math.Log(float64(s)))
	for i := 0; i < len(x); i += piece { // the difference first: it is exact near the maximum
		d := dst[i:min(i+piece, len(x))]
		AddScalar(d, x[i:i+len(d)], -top)
		AddScalar(d, d, -shift)
	}
}

// LogSoftmaxGradRow does dst[i] = dy[i] - exp(y[i])·Σ dy[j], y the result of LogSoftmaxRow.
func (m Mode) LogSoftmaxGradRow(dst, y, dy []float32) {
	same("LogSoftmaxGradRow", len(dst), len(y), len(dy))
	m.logSoftmaxGrad(dst, y, dy, Sum(dy))
}

func (m Mode) logSoftmaxGrad(dst, y, dy []float32, sum float32) {
	if !m.has(logSoftmaxGradKernel) {
		for i, v := range y {
			dst[i] = FMA(-exp(v), sum, dy[i])
		}
		return
	}
	for i := 0; i < len(dst); i += chunk {
		logSoftmaxGradVec(m.code(), &dst[i], &y[i], &dy[i], min(chunk, len(dst)-i), sum)
	}
}
