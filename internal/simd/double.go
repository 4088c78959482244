package simd

// Functions of float64. Kernels and plain loops have the same bits here too.

// double is a function of one float64, and doubleGrad one of what a forward kept and of the gradient of its result.
func double(m Mode, op string, f func(m Mode, dst, x []float64), dst, x []float64) {
	same(op, len(dst), len(x))
	f(m, dst, x)
	m.Done()
}

func doubleGrad(m Mode, op string, f func(m Mode, dst, kept, dy []float64), dst, kept, dy []float64) {
	same(op, len(dst), len(kept), len(dy))
	f(m, dst, kept, dy)
	m.Done()
}

// ExpDouble does dst[i] = eˣ for x = x[i], within 1 ulp over the whole range.
func ExpDouble(dst, x []float64) { double(computed(dst, x), "ExpDouble", Mode.expDouble, dst, x) }

func (m Mode) expDouble(dst, x []float64) { each(m, expDoubleKernel, expDoubleVec, ExpOf, dst, x) }

// LogDouble does dst[i] = ln x[i], within 1 ulp; -Inf for 0, NaN for x < 0.
func LogDouble(dst, x []float64) { double(computed(dst, x), "LogDouble", Mode.logDouble, dst, x) }

func (m Mode) logDouble(dst, x []float64) { each(m, logDoubleKernel, logDoubleVec, LogOf, dst, x) }

// TanhDouble does dst[i] = tanh x[i], within 1 ulp.
func TanhDouble(dst, x []float64) { double(computed(dst, x), "TanhDouble", Mode.tanhDouble, dst, x) }

func (m Mode) tanhDouble(dst, x []float64) {
	each(m, tanhDoubleKernel, tanhDoubleVec, TanhOf, dst, x)
}

// SigmoidDouble does dst[i] = 1/(1+e⁻ˣ) for x = x[i], within 2 ulp on both sides.
func SigmoidDouble(dst, x []float64) {
	double(computed(dst, x), "SigmoidDouble", Mode.sigmoidDouble, dst, x)
}

func (m Mode) sigmoidDouble(dst, x []float64) {
	each(m, sigmoidDoubleKernel, sigmoidDoubleVec, SigmoidOf, dst, x)
}

// Expm1Double does dst[i] = eˣ - 1 for x = x[i], within 2 ulp.
func Expm1Double(dst, x []float64) { double(computed(dst, x), "Expm1Double", Mode.expm1Double, dst, x) }

func (m Mode) expm1Double(dst, x []float64) {
	each(m, expm1DoubleKernel, expm1DoubleVec, Expm1Of, dst, x)
}

// Log1pDouble does dst[i] = ln(1+x[i]), within 2 ulp; -Inf for -1, NaN for x < -1.
func Log1pDouble(dst, x []float64) { double(computed(dst, x), "Log1pDouble", Mode.log1pDouble, dst, x) }

func (m Mode) log1pDouble(dst, x []float64) {
	each(m, log1pDoubleKernel, log1pDoubleVec, Log1pOf, dst, x)
}

// SoftplusDouble does dst[i] = ln(1+eˣ) for x = x[i], within 3 ulp.
func SoftplusDouble(dst, x []float64) {
	double(computed(dst, x), "SoftplusDouble", Mode.softplusDouble, dst, x)
}

func (m Mode) softplusDouble(dst, x []float64) {
	each(m, softplusDoubleKernel, softplusDoubleVec, SoftplusOf, dst, x)
}

// SoftplusGradDouble does dst[i] = dy[i]·sigmoid(x[i]), the sigmoid being that of SigmoidDouble.
func SoftplusGradDouble(dst, x, dy []float64) {
	doubleGrad(computed(dst, x, dy), "SoftplusGradDouble", Mode.softplusGradDouble, dst, x, dy)
}

func (m Mode) softplusGradDouble(dst, x, dy []float64) {
	eachPair(m, softplusGradDoubleKernel, softplusGradDoubleVec, func(x, dy float64) float64 { return dy * SigmoidOf(x) }, dst, x, dy)
}

// LogSigmoidDouble does dst[i] = -ln(1+e⁻ˣ) for x = x[i], within 3 ulp.
func LogSigmoidDouble(dst, x []float64) {
	double(computed(dst, x), "LogSigmoidDouble", Mode.logSigmoidDouble, dst, x)
}

func (m Mode) logSigmoidDouble(dst, x []float64) {
	each(m, logSigmoidDoubleKernel, logSigmoidDoubleVec, LogSigmoidOf, dst, x)
}

// SiluDouble does dst[i] = x·sigmoid(x) for x = x[i], within 3 ulp where the sigmoid is not subnormal.
func SiluDouble(dst, x []float64) { double(computed(dst, x), "SiluDouble", Mode.siluDouble, dst, x) }

func (m Mode) siluDouble(dst, x []float64) {
	each(m, siluDoubleKernel, siluDoubleVec, SiluOf, dst, x)
}

// SiluGradDouble does dst[i] = dy[i]·s·(1 + x·(1-s)) with x = x[i] and s = sigmoid(x).
func SiluGradDouble(dst, x, dy []float64) {
	doubleGrad(computed(dst, x, dy), "SiluGradDouble", Mode.siluGradDouble, dst, x, dy)
}

func (m Mode) siluGradDouble(dst, x, dy []float64) {
	eachPair(m, siluGradDoubleKernel, siluGradDoubleVec, siluGradDouble, dst, x, dy)
}

// TanhGradDouble does dst[i] = dy[i]·(1 - y[i]²), y the result of TanhDouble.
func TanhGradDouble(dst, y, dy []float64) {
	doubleGrad(Writing(dst, y, dy), "TanhGradDouble", Mode.tanhGradDouble, dst, y, dy)
}

func (m Mode) tanhGradDouble(dst, y, dy []float64) {
	eachPair(m, tanhGradDoubleKernel, tanhGradDoubleVec, tanhGradDouble, dst, y, dy)
}

// SigmoidGradDouble does dst[i] = dy[i]·y[i]·(1 - y[i]), y the result of SigmoidDouble.
func SigmoidGradDouble(dst, y, dy []float64) {
	doubleGrad(Writing(dst, y, dy), "SigmoidGradDouble", Mode.sigmoidGradDouble, dst, y, dy)
}

func (m Mode) sigmoidGradDouble(dst, y, dy []float64) {
	eachPair(m, sigmoidGradDoubleKernel, sigmoidGradDoubleVec, sigmoidGradDouble, dst, y, dy)
}

// ClampDouble is Clamp of float64, and ClampGradDouble ClampGrad.
func ClampDouble(dst, x []float64, lo, hi float64) {
	same("ClampDouble", len(dst), len(x))
	m := Writing(dst, x)
	m.clampDouble(dst, x, lo, hi)
	m.Done()
}

func (m Mode) clampDouble(dst, x []float64, lo, hi float64) {
	clampBy(m, clampDoubleKernel, clampDoubleVec, dst, x, lo, hi)
}

// ClampGradDouble is described with ClampDouble.
func ClampGradDouble(dst, x, dy []float64, lo, hi float64) {
	same("ClampGradDouble", len(dst), len(x), len(dy))
	m := Writing(dst, x, dy)
	m.clampGradDouble(dst, x, dy, lo, hi)
	m.Done()
}

func (m Mode) clampGradDouble(dst, x, dy []float64, lo, hi float64) {
	clampGradBy(m, clampGradDoubleKernel, clampGradDoubleVec, dst, x, dy, lo, hi)
}

// compareDouble is compare of float64.
func (m Mode) compareDouble(op Comparison, dst []bool, a, b []float64) {
	k := [...]kernel{equalDoubleKernel, notEqualDoubleKernel, lessDoubleKernel, lessOrEqualDoubleKernel}[op]
	vec := [...]func(wide bool, dst *bool, a, b *float64, n int){equalDoubleVec, notEqualDoubleVec, lessDoubleVec, lessOrEqualDoubleVec}[op]
	compareBy(m, k, vec, op, dst, a, b)
}
