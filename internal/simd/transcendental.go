package simd

import "math"

// Erf does dst[i] = erf x[i], the error function, within 2 ulp.
func Erf(dst, x []float32) { computed(dst, x).unary("Erf", Mode.erf, dst, x) }

func (m Mode) erf(dst, x []float32) { each(m, erfKernel, erfVec, erf, dst, x) }

// ErfGrad does dst[i] = dy·2/√π·exp(-x²) for x = x[i], dy = dy[i]; what dy is multiplied by is within 2 ulp.
func ErfGrad(dst, x, dy []float32) {
	computed(dst, x, dy).gradient("ErfGrad", Mode.erfGrad, dst, x, dy)
}

func (m Mode) erfGrad(dst, x, dy []float32) {
	m.eachSlope(erfGradKernel, erfGradVec, erfSlope, dst, x, dy)
}

// Expm1 does dst[i] = eˣ - 1 for x = x[i], within 2 ulp.
func Expm1(dst, x []float32) { computed(dst, x).unary("Expm1", Mode.expm1, dst, x) }

func (m Mode) expm1(dst, x []float32) { each(m, expm1Kernel, expm1Vec, expm1, dst, x) }

// Expm1Grad does dst[i] = dy[i]·(y[i] + 1), y the result of Expm1.
func Expm1Grad(dst, y, dy []float32) {
	Writing(dst, y, dy).gradient("Expm1Grad", Mode.expm1Grad, dst, y, dy)
}

func (m Mode) expm1Grad(dst, y, dy []float32) {
	eachPair(m, expm1GradKernel, expm1GradVec, func(y, dy float32) float32 { return dy * (y + 1) }, dst, y, dy)
}

// Log1p does dst[i] = ln(1 + x[i]), within 2 ulp; -Inf for -1, NaN for x < -1.
func Log1p(dst, x []float32) { computed(dst, x).unary("Log1p", Mode.log1p, dst, x) }

func (m Mode) log1p(dst, x []float32) { each(m, log1pKernel, log1pVec, log1p, dst, x) }

// Log1pGrad does dst[i] = dy[i]/(1 + x[i]).
func Log1pGrad(dst, x, dy []float32) {
	Writing(dst, x, dy).gradient("Log1pGrad", Mode.log1pGrad, dst, x, dy)
}

func (m Mode) log1pGrad(dst, x, dy []float32) {
	eachPair(m, log1pGradKernel, log1pGradVec, func(x, dy float32) float32 { return dy / (x + 1) }, dst, x, dy)
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
	m.within(x, func(m Mode, i, end int) { each(m, sinKernel, sinVec, sin, dst[i:end], x[i:end]) })
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
	m.within(x, func(m Mode, i, end int) { each(m, cosKernel, cosVec, cos, dst[i:end], x[i:end]) })
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

// Exp2 does dst[i] = 2ˣ for x = x[i], within 2 ulp, exact for whole x.
func Exp2(dst, x []float32) { computed(dst, x).unary("Exp2", Mode.exp2, dst, x) }

func (m Mode) exp2(dst, x []float32) { each(m, exp2Kernel, exp2Vec, exp2, dst, x) }

// Exp2Grad does dst[i] = dy[i]·y[i]·ln 2, y the result of Exp2.
func Exp2Grad(dst, y, dy []float32) {
	Writing(dst, y, dy).gradient("Exp2Grad", Mode.exp2Grad, dst, y, dy)
}

func (m Mode) exp2Grad(dst, y, dy []float32) {
	eachPair(m, exp2GradKernel, exp2GradVec, func(y, dy float32) float32 { return float32(dy*y) * math.Ln2 }, dst, y, dy)
}

// Log2 does dst[i] = the logarithm of x[i] to base 2, within 2 ulp, exact at powers of 2; -Inf for 0, NaN for x < 0.
func Log2(dst, x []float32) { computed(dst, x).unary("Log2", Mode.log2, dst, x) }

func (m Mode) log2(dst, x []float32) { each(m, log2Kernel, log2Vec, log2, dst, x) }

// Log2Grad does dst[i] = dy[i]/(x[i]·ln 2).
func Log2Grad(dst, x, dy []float32) {
	Writing(dst, x, dy).gradient("Log2Grad", Mode.log2Grad, dst, x, dy)
}

func (m Mode) log2Grad(dst, x, dy []float32) {
	eachPair(m, log2GradKernel, log2GradVec, func(x, dy float32) float32 { return float32(dy/x) * math.Log2E }, dst, x, dy)
}

// Log10 does dst[i] = the logarithm of x[i] to base 10, within 2 ulp; -Inf for 0, NaN for x < 0.
func Log10(dst, x []float32) { computed(dst, x).unary("Log10", Mode.log10, dst, x) }

func (m Mode) log10(dst, x []float32) { each(m, log10Kernel, log10Vec, log10, dst, x) }

// Log10Grad does dst[i] = dy[i]/(x[i]·ln 10).
func Log10Grad(dst, x, dy []float32) {
	Writing(dst, x, dy).gradient("Log10Grad", Mode.log10Grad, dst, x, dy)
}

func (m Mode) log10Grad(dst, x, dy []float32) {
	eachPair(m, log10GradKernel, log10GradVec, func(x, dy float32) float32 { return float32(dy*math.Log10E) / x }, dst, x, dy)
}

// Sinh does dst[i] = sinh x[i], within 2 ulp.
func Sinh(dst, x []float32) { computed(dst, x).unary("Sinh", Mode.sinh, dst, x) }

func (m Mode) sinh(dst, x []float32) { each(m, sinhKernel, sinhVec, sinh, dst, x) }

// SinhGrad does dst[i] = dy[i]·cosh x[i], the cosine being that of Cosh.
func SinhGrad(dst, x, dy []float32) {
	computed(dst, x, dy).gradient("SinhGrad", Mode.sinhGrad, dst, x, dy)
}

func (m Mode) sinhGrad(dst, x, dy []float32) {
	m.eachSlope(sinhGradKernel, sinhGradVec, cosh, dst, x, dy)
}

// Cosh does dst[i] = cosh x[i], within 2 ulp.
func Cosh(dst, x []float32) { computed(dst, x).unary("Cosh", Mode.cosh, dst, x) }

func (m Mode) cosh(dst, x []float32) { each(m, coshKernel, coshVec, cosh, dst, x) }

// CoshGrad does dst[i] = dy[i]·sinh x[i], the sine being that of Sinh.
func CoshGrad(dst, x, dy []float32) {
	computed(dst, x, dy).gradient("CoshGrad", Mode.coshGrad, dst, x, dy)
}

func (m Mode) coshGrad(dst, x, dy []float32) {
	m.eachSlope(coshGradKernel, coshGradVec, sinh, dst, x, dy)
}

// Atan does dst[i] = arctan x[i], within 2 ulp.
func Atan(dst, x []float32) { computed(dst, x).unary("Atan", Mode.atan, dst, x) }

func (m Mode) atan(dst, x []float32) { each(m, atanKernel, atanVec, atan, dst, x) }

// AtanGrad does dst[i] = dy/(1+x²) for x = x[i], dy = dy[i]; what dy is multiplied by is within 2 ulp.
func AtanGrad(dst, x, dy []float32) {
	computed(dst, x, dy).gradient("AtanGrad", Mode.atanGrad, dst, x, dy)
}

func (m Mode) atanGrad(dst, x, dy []float32) {
	m.eachSlope(atanGradKernel, atanGradVec, atanSlope, dst, x, dy)
}

// Tan does dst[i] = tan x[i], x in radians, within 3 ulp, as Sin does.
func Tan(dst, x []float32) { computed(dst, x).unary("Tan", Mode.tan, dst, x) }

func (m Mode) tan(dst, x []float32) {
	m.within(x, func(m Mode, i, end int) { each(m, tanKernel, tanVec, tan, dst[i:end], x[i:end]) })
}

// TanGrad does dst[i] = dy[i]·(1 + y[i]²), y the result of Tan.
func TanGrad(dst, y, dy []float32) {
	Writing(dst, y, dy).gradient("TanGrad", Mode.tanGrad, dst, y, dy)
}

func (m Mode) tanGrad(dst, y, dy []float32) {
	eachPair(m, tanGradKernel, tanGradVec, func(y, dy float32) float32 { return dy * FMA(y, y, 1) }, dst, y, dy)
}

// Asin does dst[i] = arcsin x[i], within 3 ulp; NaN unless |x[i]| ≤ 1.
func Asin(dst, x []float32) { computed(dst, x).unary("Asin", Mode.asin, dst, x) }

func (m Mode) asin(dst, x []float32) { each(m, asinKernel, asinVec, asin, dst, x) }

// AsinGrad does dst[i] = dy[i]/√(1-x[i]²).
func AsinGrad(dst, x, dy []float32) {
	Writing(dst, x, dy).gradient("AsinGrad", Mode.asinGrad, dst, x, dy)
}

func (m Mode) asinGrad(dst, x, dy []float32) {
	eachPair(m, asinGradKernel, asinGradVec, func(x, dy float32) float32 { return dy / beside(x) }, dst, x, dy)
}

// Acos does dst[i] = arccos x[i], within 3 ulp; NaN unless |x[i]| ≤ 1.
func Acos(dst, x []float32) { computed(dst, x).unary("Acos", Mode.acos, dst, x) }

func (m Mode) acos(dst, x []float32) { each(m, acosKernel, acosVec, acos, dst, x) }

// AcosGrad does dst[i] = -dy[i]/√(1-x[i]²).
func AcosGrad(dst, x, dy []float32) {
	Writing(dst, x, dy).gradient("AcosGrad", Mode.acosGrad, dst, x, dy)
}

func (m Mode) acosGrad(dst, x, dy []float32) {
	eachPair(m, acosGradKernel, acosGradVec, func(x, dy float32) float32 { return -dy / beside(x) }, dst, x, dy)
}

// Asinh does dst[i] = arsinh x[i], within 3 ulp.
func Asinh(dst, x []float32) { computed(dst, x).unary("Asinh", Mode.asinh, dst, x) }

func (m Mode) asinh(dst, x []float32) { each(m, asinhKernel, asinhVec, asinh, dst, x) }

// AsinhGrad does dst[i] = dy[i]/√(1+x[i]²).
func AsinhGrad(dst, x, dy []float32) {
	Writing(dst, x, dy).gradient("AsinhGrad", Mode.asinhGrad, dst, x, dy)
}

func (m Mode) asinhGrad(dst, x, dy []float32) {
	m.eachSlope(asinhGradKernel, asinhGradVec, asinhSlope, dst, x, dy)
}

// Acosh does dst[i] = arcosh x[i], within 3 ulp; NaN for x[i] < 1.
func Acosh(dst, x []float32) { computed(dst, x).unary("Acosh", Mode.acosh, dst, x) }

func (m Mode) acosh(dst, x []float32) { each(m, acoshKernel, acoshVec, acosh, dst, x) }

// AcoshGrad does dst[i] = dy[i]/√(x[i]²-1).
func AcoshGrad(dst, x, dy []float32) {
	Writing(dst, x, dy).gradient("AcoshGrad", Mode.acoshGrad, dst, x, dy)
}

func (m Mode) acoshGrad(dst, x, dy []float32) {
	m.eachSlope(acoshGradKernel, acoshGradVec, acoshSlope, dst, x, dy)
}

// Atanh does dst[i] = artanh x[i], within 3 ulp; NaN unless |x[i]| ≤ 1.
func Atanh(dst, x []float32) { computed(dst, x).unary("Atanh", Mode.atanh, dst, x) }

func (m Mode) atanh(dst, x []float32) { each(m, atanhKernel, atanhVec, atanh, dst, x) }

// AtanhGrad does dst[i] = dy[i]/(1-x[i]²).
func AtanhGrad(dst, x, dy []float32) {
	Writing(dst, x, dy).gradient("AtanhGrad", Mode.atanhGrad, dst, x, dy)
}

func (m Mode) atanhGrad(dst, x, dy []float32) {
	eachPair(m, atanhGradKernel, atanhGradVec, func(x, dy float32) float32 { return float32(dy/(1-x)) / (x + 1) }, dst, x, dy)
}

// Erfc does dst[i] = 1 - erf x[i], within 6 ulp for large x[i] too.
func Erfc(dst, x []float32) { computed(dst, x).unary("Erfc", Mode.erfc, dst, x) }

func (m Mode) erfc(dst, x []float32) { each(m, erfcKernel, erfcVec, erfc, dst, x) }

// ErfcGrad is ErfGrad of -dy.
func ErfcGrad(dst, x, dy []float32) {
	computed(dst, x, dy).gradient("ErfcGrad", Mode.erfcGrad, dst, x, dy)
}

func (m Mode) erfcGrad(dst, x, dy []float32) {
	m.eachSlope(erfcGradKernel, erfcGradVec, func(x float32) float32 { return -erfSlope(x) }, dst, x, dy)
}

// Pow does dst[i] = a[i] to the power b[i], within 2 ulp, and of special values what math.Pow gives.
func (m Mode) Pow(dst, a, b []float32) {
	if !m.has(powerKernel) || !m.has(powerOfKernel) {
		for i, v := range a {
			dst[i] = pow(v, b[i])
		}
		return
	}
	var y [1024]float32 // |a|ᵇ: registers do not suffice for both
	near := Mode{Level: m.Level}.code()
	for i := 0; i < len(dst); i += len(y) {
		n := min(len(y), len(dst)-i)
		powerVec(near, &y[0], &a[i], &b[i], n)
		powerOfVec(m.code(), &dst[i], &a[i], &b[i], &y[0], n)
	}
}

// PowScalar does dst[i] = x[i] to the power v, or with swap v to the power x[i], with the bits of Pow.
func (m Mode) PowScalar(dst, x []float32, v float32, swap bool) {
	if v == 2 && !swap {
		m.Mul(dst, x, x)
		return
	}
	var all [1024]float32
	for i := range all {
		all[i] = v
	}
	for i := 0; i < len(x); i += len(all) {
		end := min(i+len(all), len(x))
		a, b := x[i:end], all[:end-i]
		if swap {
			a, b = b, a
		}
		m.Pow(dst[i:end], a, b)
	}
}
