package simd

import "math"

// Activations and the error function of one element; see scalar.go.

// tanh is the hyperbolic tangent.
func tanh(x float32) float32 {
	t := abs(x)
	if t < 0.625 {
		z := float32(t * t)
		return signed(FMA(float32(poly(z, tangent[:])*z), t, t), x) // -0 stays
	}
	return signed(1-2/(exp(t+t)+1), x)
}

// sigmoid is 1/(1+e⁻ˣ).
func sigmoid(x float32) float32 {
	e := exp(below(x))
	if x < 0 {
		return e / (e + 1)
	}
	return 1 / (e + 1)
}

// tail returns t = |x|, but at most 14.422, q = Φ(-t), the tail of the normal distribution, and e = exp(-t²/2).
func tail(x float32) (t, q, e float32) {
	if t = abs(x); t > 14.422 {
		t = 14.422
	}
	e = exp(float32(t*t) * -0.5)
	u := 1 / FMA(t, 0.35, 1)
	return t, float32(float32(poly(u, normalTail[:])*u) * e), e
}

// gelu is x·Φ(x).
func gelu(x float32) float32 {
	t, q, _ := tail(x)
	if x < 0 {
		x = 0
	}
	return FMA(-t, q, x)
}

// geluSlope is the derivative of gelu.
func geluSlope(x float32) float32 {
	t, q, e := tail(x)
	if !(x < 0) {
		q = 1 - q
	}
	return FMA(float32(signed(t, x)*e), 1/2.5066282746310002, q) // √(2π)
}

// geluTanh is the tanh form of gelu.
func geluTanh(x float32) float32 {
	x = atLeast(-bentCut, x) // -Inf·0 would be NaN
	return x * sigmoid(bend(x))
}

// The tanh form of gelu is x·sigmoid(linear·x + cubic·x³). Beyond ±bentCut the sigmoid is 0 or 1 in float32.
const (
	linear  = 1.5957691216057308 // 2·√(2/π)
	cubic   = 0.044715 * linear
	bentCut = 12
)

func bend(x float32) float32 { return x * FMA(float32(x*x), cubic, linear) }

// geluTanhSlope is the derivative of geluTanh.
func geluTanhSlope(x float32) float32 {
	if x = atLeast(-bentCut, x); x > bentCut {
		x = bentCut
	}
	e := exp(below(bend(x)))
	r := 1 / (e + 1)
	q := float32(e * r)
	s := r
	if x < 0 {
		s = q
	}
	return FMA(float32(x*FMA(float32(x*x), 3*cubic, linear)), float32(q*r), s)
}

func silu(x float32) float32 { return x * sigmoid(x) }

func siluSlope(x float32) float32 {
	s := sigmoid(x)
	return s * FMA(x, 1-s, 1)
}

// erf is the error function.
func erf(x float32) float32 {
	t := abs(x)
	if t < 0.92 {
		return FMA(poly(float32(x*x), errorNear[:]), x, x)
	}
	if t > 4 {
		t = 4
	}
	return signed(1-exp(poly(t, errorFar[:])), x)
}

// erfSlope is the derivative of erf.
func erfSlope(x float32) float32 {
	t := abs(x)
	if t > 10.198 {
		t = 10.198
	}
	z := float32(t * t)
	e := exp(-z)
	const scale = 0x1.20dd76p0 // 2/√π except for what float32 has no room for
	return FMA(e, scale, e*FMA(FMA(-t, t, z), scale, 2/math.SqrtPi-scale))
}

// softplus is ln(1+eˣ).
func softplus(x float32) float32 {
	if x != x {
		return x
	}
	return max(x, 0) + log1pExp(x)
}

// logSigmoid is the logarithm of sigmoid.
func logSigmoid(x float32) float32 {
	if x != x {
		return x
	}
	return min(x, 0) - log1pExp(x)
}

func log1pExp(x float32) float32 { return logOf(normalOf1(exp(below(x)))) }

// squareLess1 returns e = eˣ and n = (1+e)² - 1, of which tanh(ln(1+e)) is n/(n+2). From flat on that is 1.
func squareLess1(x float32) (e, n float32) {
	e = exp(x)
	return e, float32(e * (e + 2))
}

const flat = 20

// atMost is x, or high if x is above it; NaN stays.
func atMost(high, x float32) float32 {
	if x > high {
		return high
	}
	return x
}

// mish is x·tanh(softplus x).
func mish(x float32) float32 {
	_, n := squareLess1(atMost(flat, x))
	return x * (n / (n + 2))
}

// mishSlope is the derivative of mish.
func mishSlope(x float32) float32 {
	x = atMost(flat, x)
	e, n := squareLess1(x)
	r := 1 / (n + 2)
	w := float32(float32(float32(e*4)*(e+1)) * r)
	return FMA(x, w, n) * r
}

// hard is min(max(x+3, 0), 6).
func hard(x float32) float32 {
	x += 3
	if x < 0 {
		x = 0
	}
	return atMost(6, x)
}

// hardswishSlope is the derivative of x·hard(x)/6.
func hardswishSlope(x float32) float32 {
	switch {
	case x > 3:
		return 1
	case x < -3:
		return 0
	}
	return FMA(x, 2, 3) / 6
}

// elu is x where it is above 0, and eˣ-1 elsewhere, and eluSlope its derivative.
func elu(x float32) float32 {
	if x > 0 {
		return x
	}
	return expm1(x)
}

func eluSlope(x float32) float32 {
	if x > 0 {
		return 1
	}
	return exp(x)
}

// erfc is 1 - erf x.
func erfc(x float32) float32 {
	t := abs(x)
	if t > 10.198 {
		t = 10.198
	}
	z := float32(t * t)
	e := exp(-z)
	u := 1 / FMA(t, 0.35*math.Sqrt2, 1)
	q := float32(poly(u, normalTail[:]) * u)
	q = float32((q + q) * FMA(e, FMA(-t, t, z), e))
	if x < 0 {
		return 2 - q
	}
	return q
}

// The coefficients of the polynomials of tanh, tail and erf, from the lowest.
var (
	tangent    = [...]float32{-0.333332839254, 0.133314912894, -0.0537434982405, 0.0206505877273, -0.00571704546186}
	normalTail = [...]float32{0.139621404551, 0.139861864512, 0.119832910721, 0.105507811564, -0.0231093297237, 0.15917335794,
		-0.255713498026, 0.143971308734, -0.0291458462173}
	errorNear = [...]float32{0.128379151225, -0.376124888659, 0.112817302346, -0.0267629157752, 0.0049872752279, -0.000595933874138}
	errorFar  = [...]float32{-8.49064308568e-05, -1.12820863724, -0.636016130447, -0.105437859893, 0.0234448425472, -0.003642906202,
		0.000358403282007, -1.8375016225e-05}
)
