package simd

// unary calls f in mode m, which Writing returned, to compute dst from x.
func (m Mode) unary(op string, f func(m Mode, dst, x []float32), dst, x []float32) {
	same(op, len(dst), len(x))
	f(m, dst, x)
	m.Done()
}

// each does dst[i] = plain(x[i]) in mode m, by kernel k where there is assembly.
func each[T float32 | float64](m Mode, k kernel, vec func(level uint8, dst, x *T, n int), plain func(T) T, dst, x []T) {
	if !m.has(k) {
		for i, v := range x {
			dst[i] = plain(v)
		}
		return
	}
	for i := 0; i < len(dst); i += chunk {
		vec(m.code(), &dst[i], &x[i], min(chunk, len(dst)-i))
	}
}

// Exp does dst[i] = eˣ for x = x[i], within 1 ulp over the whole range: +Inf
// above 88.72, subnormal results where they belong, 0 below -103.97.
func Exp(dst, x []float32) { Writing(dst, x).unary("Exp", Mode.exp, dst, x) }

func (m Mode) exp(dst, x []float32) { each(m, expKernel, expVec, exp, dst, x) }

// Log does dst[i] = ln x[i], within 1 ulp; -Inf for 0, NaN for x < 0.
func Log(dst, x []float32) { computed(dst, x).unary("Log", Mode.log, dst, x) }

func (m Mode) log(dst, x []float32) { each(m, logKernel, logVec, log, dst, x) }

// Tanh does dst[i] = tanh x[i], within 2 ulp.
func Tanh(dst, x []float32) { computed(dst, x).unary("Tanh", Mode.tanh, dst, x) }

func (m Mode) tanh(dst, x []float32) { each(m, tanhKernel, tanhVec, tanh, dst, x) }

// Sigmoid does dst[i] = 1/(1+e⁻ˣ) for x = x[i], within 2 ulp on both sides.
func Sigmoid(dst, x []float32) { computed(dst, x).unary("Sigmoid", Mode.sigmoid, dst, x) }

func (m Mode) sigmoid(dst, x []float32) { each(m, sigmoidKernel, sigmoidVec, sigmoid, dst, x) }

// Sqrt does dst[i] = √x[i], correctly rounded.
func Sqrt(dst, x []float32) { Writing(dst, x).unary("Sqrt", Mode.sqrt, dst, x) }

func (m Mode) sqrt(dst, x []float32) { each(m, sqrtKernel, sqrtVec, sqrt, dst, x) }

// Rsqrt does dst[i] = 1/√x[i], each of the two operations correctly rounded.
func Rsqrt(dst, x []float32) { Writing(dst, x).unary("Rsqrt", Mode.rsqrt, dst, x) }

func (m Mode) rsqrt(dst, x []float32) {
	each(m, rsqrtKernel, rsqrtVec, func(x float32) float32 { return 1 / sqrt(x) }, dst, x)
}

// Abs does dst[i] = |x[i]|.
func Abs(dst, x []float32) { Writing(dst, x).unary("Abs", Mode.abs, dst, x) }

func (m Mode) abs(dst, x []float32) { each(m, absKernel, absVec, abs, dst, x) }

// Sign does dst[i] = -1 or 1, the sign of x[i], or x[i] where that is zero or NaN.
func Sign(dst, x []float32) { Writing(dst, x).unary("Sign", Mode.sign, dst, x) }

func (m Mode) sign(dst, x []float32) { each(m, signKernel, signVec, sign, dst, x) }

// Clamp does dst[i] = min(max(x[i], lo), hi) for lo ≤ hi; NaN stays.
func Clamp(dst, x []float32, lo, hi float32) {
	same("Clamp", len(dst), len(x))
	m := Writing(dst, x)
	m.clamp(dst, x, lo, hi)
	m.Done()
}

func (m Mode) clamp(dst, x []float32, lo, hi float32) {
	clampBy(m, clampKernel, clampVec, dst, x, lo, hi)
}

// clampBy is Clamp in mode m, by kernel k where there is assembly.
func clampBy[T float32 | float64](m Mode, k kernel, vec func(level uint8, dst, x *T, n int, lo, hi T), dst, x []T, lo, hi T) {
	if !m.has(k) {
		for i, v := range x {
			if v < lo {
				v = lo
			}
			if v > hi {
				v = hi
			}
			dst[i] = v
		}
		return
	}
	for i := 0; i < len(dst); i += chunk {
		vec(m.code(), &dst[i], &x[i], min(chunk, len(dst)-i), lo, hi)
	}
}
