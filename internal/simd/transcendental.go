package simd

// eachPair does dst[i] = plain(x[i], dy[i]), by kernel where there is assembly.
func (m Mode) eachPair(k kernel, vec func(level uint8, dst, x, dy *float32, n int), plain func(x, dy float32) float32,
	dst, x, dy []float32) {
	if !m.has(k) {
		for i, v := range x {
			dst[i] = plain(v, dy[i])
		}
		return
	}
	for i := 0; i < len(dst); i += chunk {
		vec(m.code(), &dst[i], &x[i], &dy[i], min(chunk, len(dst)-i))
	}
}

// Erf does dst[i] = erf x[i], the error function, within 2 ulp.
func Erf(dst, x []float32) { computed(dst, x).unary("Erf", Mode.erf, dst, x) }

func (m Mode) erf(dst, x []float32) { m.each(erfKernel, erfVec, erf, dst, x) }

// ErfGrad does dst[i] = dy·2/√π·exp(-x²) for x = x[i], dy = dy[i]; what dy is multiplied by is within 2 ulp.
func ErfGrad(dst, x, dy []float32) {
	computed(dst, x, dy).gradient("ErfGrad", Mode.erfGrad, dst, x, dy)
}

func (m Mode) erfGrad(dst, x, dy []float32) {
	m.eachSlope(erfGradKernel, erfGradVec, erfSlope, dst, x, dy)
}

// Expm1 does dst[i] = eˣ - 1 for x = x[i], within 2 ulp.
func Expm1(dst, x []float32) { computed(dst, x).unary("Expm1", Mode.expm1, dst, x) }

func (m Mode) expm1(dst, x []float32) { m.each(expm1Kernel, expm1Vec, expm1, dst, x) }

// Expm1Grad does dst[i] = dy[i]·(y[i] + 1), y the result of Expm1.
func Expm1Grad(dst, y, dy []float32) {
	Writing(dst, y, dy).gradient("Expm1Grad", Mode.expm1Grad, dst, y, dy)
}

func (m Mode) expm1Grad(dst, y, dy []float32) {
	m.eachPair(expm1GradKernel, expm1GradVec, func(y, dy float32) float32 { return dy * (y + 1) }, dst, y, dy)
}

// Log1p does dst[i] = ln(1 + x[i]), within 2 ulp; -Inf for -1, NaN for x < -1.
func Log1p(dst, x []float32) { computed(dst, x).unary("Log1p", Mode.log1p, dst, x) }

func (m Mode) log1p(dst, x []float32) { m.each(log1pKernel, log1pVec, log1p, dst, x) }

// Log1pGrad does dst[i] = dy[i]/(1 + x[i]).
func Log1pGrad(dst, x, dy []float32) {
	Writing(dst, x, dy).gradient("Log1pGrad", Mode.log1pGrad, dst, x, dy)
}

func (m Mode) log1pGrad(dst, x, dy []float32) {
	m.eachPair(log1pGradKernel, log1pGradVec, func(x, dy float32) float32 { return dy / (x + 1) }, dst, x, dy)
}

// within calls f for the pieces of x, with the mode of plain loops for one that holds a number beyond ±quartersTo or NaN:
// the kernels are for the others.
func (m Mode) within(x []float32, f func(m Mode, from, to int)) {
	for i := 0; i < len(x); i += piece {
		p := x[i:min(i+piece, len(x))]
		if m.maxValue(p) <= quartersTo && m.minValue(p) >= -quartersTo {
			f(m, i, i+len(p))
		} else {
			f(Mode{Level: Scalar}, i, i+len(p))
		}
	}
}

// Sin does dst[i] = sin x[i], x in radians, within 2 ulp. Beyond ±102900 it is computed in float64, slowly, as are the elements
// near it.
func Sin(dst, x []float32) { computed(dst, x).unary("Sin", Mode.sin, dst, x) }

func (m Mode) sin(dst, x []float32) {
	m.within(x, func(m Mode, i, end int) { m.each(sinKernel, sinVec, sin, dst[i:end], x[i:end]) })
}

// SinGrad does dst[i] = dy[i]·cos x[i], the cosine being that of Cos.
func SinGrad(dst, x, dy []float32) {
	computed(dst, x, dy).gradient("SinGrad", Mode.sinGrad, dst, x, dy)
}

func (m Mode) sinGrad(dst, x, dy []float32) {
	m.within(x, func(m Mode, i, end int) { m.eachSlope(sinGradKernel, sinGradVec, cos, dst[i:end], x[i:end], dy[i:end]) })
}

// Cos does dst[i] = cos x[i], x in radians, as Sin does.
func Cos(dst, x []float32) { computed(dst, x).unary("Cos", Mode.cos, dst, x) }

func (m Mode) cos(dst, x []float32) {
	m.within(x, func(m Mode, i, end int) { m.each(cosKernel, cosVec, cos, dst[i:end], x[i:end]) })
}

// CosGrad does dst[i] = -dy[i]·sin x[i], the sine being that of Sin.
func CosGrad(dst, x, dy []float32) {
	computed(dst, x, dy).gradient("CosGrad", Mode.cosGrad, dst, x, dy)
}

func (m Mode) cosGrad(dst, x, dy []float32) {
	less := func(x float32) float32 { return -sin(x) }
	m.within(x, func(m Mode, i, end int) {
		m.eachSlope(cosGradKernel, cosGradVec, less, dst[i:end], x[i:end], dy[i:end])
	})
}
