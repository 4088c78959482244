package simd

// gradient calls f in mode m, which Writing returned, to compute dst from kept, which the
// forward pass kept, and dy.
func (m Mode) gradient(op string, f func(m Mode, dst, kept, dy []float32), dst, kept, dy []float32) {
	same(op, len(dst), len(kept), len(dy))
	f(m, dst, kept, dy)
	m.Done()
}

// eachPair does dst[i] = plain(x[i], dy[i]) in mode m, by kernel k where there is assembly.
func eachPair[T float32 | float64](m Mode, k kernel, vec func(level uint8, dst, x, dy *T, n int), plain func(x, dy T) T, dst, x, dy []T) {
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

// eachSlope does dst[i] = dy[i]·slope(x[i]), by kernel where there is assembly.
func (m Mode) eachSlope(k kernel, vec func(level uint8, dst, x, dy *float32, n int), slope func(float32) float32, dst, x, dy []float32) {
	eachPair(m, k, vec, func(x, dy float32) float32 { return dy * slope(x) }, dst, x, dy)
}

// Relu does dst[i] = x[i], or 0 if x[i] < 0; NaN and -0 stay.
func Relu(dst, x []float32) { Writing(dst, x).unary("Relu", Mode.relu, dst, x) }

func (m Mode) relu(dst, x []float32) {
	each(m, reluKernel, reluVec, func(x float32) float32 {
		if x < 0 {
			return 0
		}
		return x
	}, dst, x)
}

// ReluGrad does dst[i] = dy[i], or 0 if x[i] <= 0. x is the argument of Relu or its
// result.
func ReluGrad(dst, x, dy []float32) {
	Writing(dst, x, dy).gradient("ReluGrad", Mode.reluGrad, dst, x, dy)
}

func (m Mode) reluGrad(dst, x, dy []float32) {
	eachPair(m, reluGradKernel, reluGradVec, func(x, dy float32) float32 {
		if x <= 0 {
			return 0
		}
		return dy // also of NaN
	}, dst, x, dy)
}

// Gelu does dst[i] = x·Φ(x) for x = x[i], with Φ(x) = ½(1 + erf(x/√2)): the
// exact form, not the tanh approximation. The absolute error is below 1e-7
// times max(1, |x|). For -Inf it is 0, the limit, and for +Inf +Inf; PyTorch gives NaN
// for the first, and for the second NaN in float32 and +Inf in float64.
func Gelu(dst, x []float32) { computed(dst, x).unary("Gelu", Mode.gelu, dst, x) }

func (m Mode) gelu(dst, x []float32) { each(m, geluKernel, geluVec, gelu, dst, x) }

// GeluGrad does dst[i] = dy·(Φ(x) + x·φ(x)) for x = x[i], dy = dy[i], φ the
// normal density. For x = -Inf and +Inf that is dy·0 and dy·1, the limits (in PyTorch
// NaN).
func GeluGrad(dst, x, dy []float32) {
	computed(dst, x, dy).gradient("GeluGrad", Mode.geluGrad, dst, x, dy)
}

func (m Mode) geluGrad(dst, x, dy []float32) {
	m.eachSlope(geluGradKernel, geluGradVec, geluSlope, dst, x, dy)
}

// GeluTanh does dst[i] = x·½(1 + tanh(√(2/π)·(x + 0.044715·x³))) for x = x[i], the form of
// Gelu that GPT-2 and others were trained with. At the infinities it is as Gelu.
func GeluTanh(dst, x []float32) { computed(dst, x).unary("GeluTanh", Mode.geluTanh, dst, x) }

func (m Mode) geluTanh(dst, x []float32) { each(m, geluTanhKernel, geluTanhVec, geluTanh, dst, x) }

// GeluTanhGrad does dst[i] = dy[i] times the derivative of GeluTanh at x[i], 0 and 1 at
// the infinities.
func GeluTanhGrad(dst, x, dy []float32) {
	computed(dst, x, dy).gradient("GeluTanhGrad", Mode.geluTanhGrad, dst, x, dy)
}

func (m Mode) geluTanhGrad(dst, x, dy []float32) {
	m.eachSlope(geluTanhGradKernel, geluTanhGradVec, geluTanhSlope, dst, x, dy)
}

// Silu does dst[i] = x·σ(x) for x = x[i], σ the function of Sigmoid. For -Inf it
// is NaN, as in PyTorch.
func Silu(dst, x []float32) { computed(dst, x).unary("Silu", Mode.silu, dst, x) }

func (m Mode) silu(dst, x []float32) { each(m, siluKernel, siluVec, silu, dst, x) }

// SiluGrad does dst[i] = dy·σ(x)·(1 + x·(1-σ(x))) for x = x[i], dy = dy[i]. For ±Inf
// it is NaN, as in PyTorch.
func SiluGrad(dst, x, dy []float32) {
	computed(dst, x, dy).gradient("SiluGrad", Mode.siluGrad, dst, x, dy)
}

func (m Mode) siluGrad(dst, x, dy []float32) {
	m.eachSlope(siluGradKernel, siluGradVec, siluSlope, dst, x, dy)
}

// TanhGrad does dst[i] = dy[i]·(1 - y[i]²), y the result of Tanh.
func TanhGrad(dst, y, dy []float32) {
	Writing(dst, y, dy).gradient("TanhGrad", Mode.tanhGrad, dst, y, dy)
}

func (m Mode) tanhGrad(dst, y, dy []float32) {
	m.eachSlope(tanhGradKernel, tanhGradVec, func(y float32) float32 { return FMA(-y, y, 1) }, dst, y, dy)
}

// SigmoidGrad does dst[i] = dy[i]·y[i]·(1 - y[i]), y the result of Sigmoid.
func SigmoidGrad(dst, y, dy []float32) {
	Writing(dst, y, dy).gradient("SigmoidGrad", Mode.sigmoidGrad, dst, y, dy)
}

func (m Mode) sigmoidGrad(dst, y, dy []float32) {
	m.eachSlope(sigmoidGradKernel, sigmoidGradVec, func(y float32) float32 { return y * (1 - y) }, dst, y, dy)
}

// ClampGrad does dst[i] = dy[i] where lo ≤ x[i] ≤ hi, and 0 elsewhere.
func ClampGrad(dst, x, dy []float32, lo, hi float32) {
	same("ClampGrad", len(dst), len(x), len(dy))
	m := Writing(dst, x, dy)
	m.clampGrad(dst, x, dy, lo, hi)
	m.Done()
}

func (m Mode) clampGrad(dst, x, dy []float32, lo, hi float32) {
	clampGradBy(m, clampGradKernel, clampGradVec, dst, x, dy, lo, hi)
}

// clampGradBy is ClampGrad in mode m, by kernel k where there is assembly.
func clampGradBy[T float32 | float64](m Mode, k kernel, vec func(level uint8, dst, x, dy *T, n int, lo, hi T), dst, x, dy []T, lo, hi T) {
	if !m.has(k) {
		for i, v := range x {
			if g := dy[i]; v >= lo && v <= hi {
				dst[i] = g
			} else {
				dst[i] = 0
			}
		}
		return
	}
	for i := 0; i < len(dst); i += chunk {
		vec(m.code(), &dst[i], &x[i], &dy[i], min(chunk, len(dst)-i), lo, hi)
	}
}

// AbsGrad does dst[i] = dy[i]·sign(x[i]).
func AbsGrad(dst, x, dy []float32) {
	Writing(dst, x, dy).gradient("AbsGrad", Mode.absGrad, dst, x, dy)
}

func (m Mode) absGrad(dst, x, dy []float32) {
	eachPair(m, absGradKernel, absGradVec, func(x, dy float32) float32 { return dy * sign(x) }, dst, x, dy)
}

// SqrtGrad does dst[i] = dy[i]/(2·y[i]), where y is the result of Sqrt.
func SqrtGrad(dst, y, dy []float32) {
	Writing(dst, y, dy).gradient("SqrtGrad", Mode.sqrtGrad, dst, y, dy)
}

func (m Mode) sqrtGrad(dst, y, dy []float32) {
	eachPair(m, sqrtGradKernel, sqrtGradVec, func(y, dy float32) float32 { return float32(dy/y) * 0.5 }, dst, y, dy)
}

// RsqrtGrad does dst[i] = -½·dy[i]·y[i]³, where y is the result of Rsqrt.
func RsqrtGrad(dst, y, dy []float32) {
	Writing(dst, y, dy).gradient("RsqrtGrad", Mode.rsqrtGrad, dst, y, dy)
}

func (m Mode) rsqrtGrad(dst, y, dy []float32) {
	eachPair(m, rsqrtGradKernel, rsqrtGradVec, func(y, dy float32) float32 { return dy * y * y * y * -0.5 }, dst, y, dy)
}

// SquareGrad does dst[i] = 2·dy[i]·x[i].
func SquareGrad(dst, x, dy []float32) {
	Writing(dst, x, dy).gradient("SquareGrad", Mode.squareGrad, dst, x, dy)
}

func (m Mode) squareGrad(dst, x, dy []float32) {
	eachPair(m, squareGradKernel, squareGradVec, func(x, dy float32) float32 { return float32(dy*x) * 2 }, dst, x, dy)
}

// Softplus does dst[i] = ln(1+eˣ) for x = x[i], within 3 ulp.
func Softplus(dst, x []float32) { computed(dst, x).unary("Softplus", Mode.softplus, dst, x) }

func (m Mode) softplus(dst, x []float32) { each(m, softplusKernel, softplusVec, softplus, dst, x) }

// SoftplusGrad does dst[i] = dy[i]·σ(x[i]), σ the function of Sigmoid.
func SoftplusGrad(dst, x, dy []float32) {
	computed(dst, x, dy).gradient("SoftplusGrad", Mode.softplusGrad, dst, x, dy)
}

func (m Mode) softplusGrad(dst, x, dy []float32) {
	m.eachSlope(softplusGradKernel, softplusGradVec, sigmoid, dst, x, dy)
}

// LogSigmoid does dst[i] = -ln(1+e⁻ˣ) for x = x[i], within 3 ulp.
func LogSigmoid(dst, x []float32) { computed(dst, x).unary("LogSigmoid", Mode.logSigmoid, dst, x) }

func (m Mode) logSigmoid(dst, x []float32) {
	each(m, logSigmoidKernel, logSigmoidVec, logSigmoid, dst, x)
}

// LogSigmoidGrad does dst[i] = dy[i]·σ(-x[i]), σ the function of Sigmoid.
func LogSigmoidGrad(dst, x, dy []float32) {
	computed(dst, x, dy).gradient("LogSigmoidGrad", Mode.logSigmoidGrad, dst, x, dy)
}

func (m Mode) logSigmoidGrad(dst, x, dy []float32) {
	m.eachSlope(logSigmoidGradKernel, logSigmoidGradVec, func(x float32) float32 { return sigmoid(-x) }, dst, x, dy)
}

// Mish does dst[i] = x·tanh(ln(1+eˣ)) for x = x[i], within 5 ulp. For -Inf it is NaN, as in PyTorch.
func Mish(dst, x []float32) { computed(dst, x).unary("Mish", Mode.mish, dst, x) }

func (m Mode) mish(dst, x []float32) { each(m, mishKernel, mishVec, mish, dst, x) }

// MishGrad does dst[i] = dy[i] times the derivative of Mish at x[i], 1 at +Inf and NaN at -Inf.
func MishGrad(dst, x, dy []float32) {
	computed(dst, x, dy).gradient("MishGrad", Mode.mishGrad, dst, x, dy)
}

func (m Mode) mishGrad(dst, x, dy []float32) {
	m.eachSlope(mishGradKernel, mishGradVec, mishSlope, dst, x, dy)
}

// Hardsigmoid does dst[i] = min(max(x+3, 0), 6)/6 for x = x[i].
func Hardsigmoid(dst, x []float32) { Writing(dst, x).unary("Hardsigmoid", Mode.hardsigmoid, dst, x) }

func (m Mode) hardsigmoid(dst, x []float32) {
	each(m, hardsigmoidKernel, hardsigmoidVec, func(x float32) float32 { return hard(x) / 6 }, dst, x)
}

// HardsigmoidGrad does dst[i] = dy[i]/6 where -3 ≤ x[i] ≤ 3, and 0 elsewhere.
func HardsigmoidGrad(dst, x, dy []float32) {
	Writing(dst, x, dy).gradient("HardsigmoidGrad", Mode.hardsigmoidGrad, dst, x, dy)
}

func (m Mode) hardsigmoidGrad(dst, x, dy []float32) {
	eachPair(m, hardsigmoidGradKernel, hardsigmoidGradVec, func(x, dy float32) float32 {
		if abs(x) <= 3 {
			return dy / 6
		}
		return 0
	}, dst, x, dy)
}

// Hardswish does dst[i] = x·(min(max(x+3, 0), 6)/6) for x = x[i]. For -Inf it is NaN, as in PyTorch.
func Hardswish(dst, x []float32) { Writing(dst, x).unary("Hardswish", Mode.hardswish, dst, x) }

func (m Mode) hardswish(dst, x []float32) {
	each(m, hardswishKernel, hardswishVec, func(x float32) float32 { return x * (hard(x) / 6) }, dst, x)
}

// HardswishGrad does dst[i] = dy·(2x+3)/6 for x = x[i], dy = dy[i], where -3 ≤ x ≤ 3; below that 0 and above it dy.
func HardswishGrad(dst, x, dy []float32) {
	Writing(dst, x, dy).gradient("HardswishGrad", Mode.hardswishGrad, dst, x, dy)
}

func (m Mode) hardswishGrad(dst, x, dy []float32) {
	m.eachSlope(hardswishGradKernel, hardswishGradVec, hardswishSlope, dst, x, dy)
}

// ELU does dst[i] = x[i] where it is above 0, and eˣ-1 elsewhere, within 2 ulp.
func ELU(dst, x []float32) { computed(dst, x).unary("ELU", Mode.elu, dst, x) }

func (m Mode) elu(dst, x []float32) { each(m, eluKernel, eluVec, elu, dst, x) }

// ELUGrad does dst[i] = dy[i] where x[i] is above 0, and dy[i]·eˣ elsewhere.
func ELUGrad(dst, x, dy []float32) {
	computed(dst, x, dy).gradient("ELUGrad", Mode.eluGrad, dst, x, dy)
}

func (m Mode) eluGrad(dst, x, dy []float32) {
	m.eachSlope(eluGradKernel, eluGradVec, eluSlope, dst, x, dy)
}

// Leaky does dst[i] = dy[i] where x[i] is above 0, and dy[i]·slope elsewhere: the leaky ReLU of x if dy is x, and its gradient.
func Leaky(dst, x, dy []float32, slope float32) {
	same("Leaky", len(dst), len(x), len(dy))
	m := Writing(dst, x, dy)
	m.leaky(dst, x, dy, slope)
	m.Done()
}

func (m Mode) leaky(dst, x, dy []float32, slope float32) {
	if !m.has(leakyKernel) {
		for i, v := range x {
			if dst[i] = dy[i]; !(v > 0) {
				dst[i] = dy[i] * slope
			}
		}
		return
	}
	for i := 0; i < len(dst); i += chunk {
		leakyVec(m.code(), &dst[i], &x[i], &dy[i], min(chunk, len(dst)-i), slope)
	}
}
