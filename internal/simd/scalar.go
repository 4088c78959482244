package simd

import "math"

// What the assembly computes of one element, in plain Go: the functions of internal/simd/asm/functions.go, operation by
// operation, so that it has their bits. A product that is rounded before it is added to is converted, or the compiler
// may fuse the two.

// FMA is a·b + c, rounded once, on every machine.
func FMA(a, b, c float32) float32 {
	p := float64(a) * float64(b) // exact
	s := p + float64(c)
	if doubtful(s) {
		s = toOdd(p, float64(c), s)
	}
	return float32(s)
}

// FMA4 does c[i] = a·b[i] + c[i] as FMA does.
func FMA4(c *[4]float32, a float32, b *[4]float32) {
	v := float64(a)
	for i, w := range b {
		p, old := v*float64(w), float64(c[i])
		s := p + old
		if doubtful(s) {
			s = toOdd(p, old, s)
		}
		c[i] = float32(s)
	}
}

// doubtful reports whether s, a sum that was rounded to float64, may lie between two float32 where the sum itself does not.
func doubtful(s float64) bool { return math.Float64bits(s)<<36 == 0 }

// toOdd is p + c, rounded so that it is rounded to float32 as the sum itself is; s is the sum, rounded to the nearest, and its last
// bit is 0. Where that lost something, s goes the way of what it lost. See Boldo and Melquiond, "Emulation of a FMA and correctly
// rounded sums: proved algorithms using rounding to odd", 2008.
//
//go:noinline
func toOdd(p, c, s float64) float64 {
	q := s - p
	lost := (p - (s - q)) + (c - q)
	switch bits := math.Float64bits(s); {
	case lost > 0 && s > 0, lost < 0 && s < 0:
		return math.Float64frombits(bits | 1)
	case lost > 0, lost < 0:
		return math.Float64frombits(bits - 1)
	}
	return s // also where it is infinite or NaN
}

func sqrt(x float32) float32 { return float32(math.Sqrt(float64(x))) }
func abs(x float32) float32  { return math.Float32frombits(math.Float32bits(x) &^ signBit) }

const signBit = 1 << 31

// signed is x ≥ 0, or NaN, with the sign of s.
func signed(x, s float32) float32 {
	return math.Float32frombits(math.Float32bits(x) | math.Float32bits(s)&signBit)
}

// below is -|x|.
func below(x float32) float32 { return math.Float32frombits(math.Float32bits(x) | signBit) }

// poly is the polynomial in x whose coefficients are given from the lowest, by Horner's rule: FMA upon FMA, which a call each
// would make slow.
func poly(x float32, coefficients []float32) float32 {
	last := len(coefficients) - 1
	sum := coefficients[last]
	for i := last - 1; i >= 0; i-- {
		p, c := float64(sum)*float64(x), float64(coefficients[i])
		s := p + c
		if doubtful(s) {
			s = toOdd(p, c, s)
		}
		sum = float32(s)
	}
	return sum
}

// ln 2 in two parts, of which the first times a small whole number is exact.
const ln2High, ln2Low = 0.693359375, math.Ln2 - 0.693359375

// exp is eˣ.
func exp(x float32) float32 {
	switch { // NaN stays
	case x < -104:
		x = -104
	case x > 89:
		x = 89
	}
	n, r := powers(x)
	return scale(poly(r, exponential[:]), n)
}

// powers returns n = round(x/ln 2) and x - n·ln 2.
func powers(x float32) (n, r float32) {
	n = float32(math.RoundToEven(float64(float32(x * math.Log2E))))
	return n, FMA(-n, ln2Low, FMA(-n, ln2High, x))
}

// scale is p·2ⁿ, which is exact in float64.
func scale(p, n float32) float32 {
	return float32(float64(p) * math.Float64frombits(uint64(int64(n)+1023)<<52))
}

// log is ln x.
func log(x float32) float32 {
	switch {
	case !(x >= 0):
		return float32(math.NaN())
	case x == 0:
		return float32(math.Inf(-1))
	case math.IsInf(float64(x), 1):
		return x
	}
	return logOf(normal(x))
}

const root = 0x3f3504f3 // the bits of √½

// normal returns e and f with x = 2ᵉ·(1+f) and 1+f in [√½, √2), for 0 < x < Inf.
func normal(x float32) (e, f float32) {
	if x < 0x1p-126 {
		x, e = x*0x1p23, -23
	}
	i := int32(math.Float32bits(x)) - root
	e += float32(i >> 23)
	return e, math.Float32frombits(uint32(i&0x007fffff+root)) - 1
}

// logOf is ln(2ᵉ·(1+f)).
func logOf(e, f float32) float32 {
	f2, y := bow(f)
	y = FMA(-f2, 0.5, FMA(e, ln2Low, y))
	return FMA(e, ln2High, f+y)
}

// bow returns f² and ln(1+f) - f + f²/2.
func bow(f float32) (f2, y float32) {
	f2 = float32(f * f)
	return f2, float32(float32(poly(f, logarithm[:])*f) * f2)
}

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

// atLeast is x, or low if x is below it; NaN stays.
func atLeast(low, x float32) float32 {
	if x < low {
		return low
	}
	return x
}

// The coefficients of the polynomials of exp, log, tanh and tail, from the lowest.
var (
	exponential = [...]float32{1, 1, 0.50000000271, 0.166665766464, 0.04166637408, 0.0083632350724, 0.00139412183683}
	logarithm   = [...]float32{0.333333126041, -0.250000095995, 0.200021186567, -0.166679958507, 0.142195524007, -0.124055889949,
		0.118881620676, -0.116756513143, 0.067466403058}
	tangent    = [...]float32{-0.333332839254, 0.133314912894, -0.0537434982405, 0.0206505877273, -0.00571704546186}
	normalTail = [...]float32{0.139621404551, 0.139861864512, 0.119832910721, 0.105507811564, -0.0231093297237, 0.15917335794,
		-0.255713498026, 0.143971308734, -0.0291458462173}
)

// sign is -1 or 1, or x where it is zero or NaN.
func sign(x float32) float32 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return x
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
	const scale = 0x1.20dd76p0 // 2/√π but for what float32 has no room for
	return FMA(e, scale, e*FMA(FMA(-t, t, z), scale, 2/math.SqrtPi-scale))
}

// expm1 is eˣ - 1.
func expm1(x float32) float32 {
	if abs(x) < 0x1p-25 {
		return x
	}
	switch { // NaN stays
	case x < -20:
		x = -20
	case x > 89:
		x = 89
	}
	n, r := powers(x)
	p := FMA(float32(r*r), poly(r, lessOne[:]), r)
	half := math.Float32frombits(uint32(int32(n)+126) << 23)
	y := FMA(half, p, half-0.5)
	return y + y
}

// log1p is ln(1+x).
func log1p(x float32) float32 {
	switch {
	case abs(x) < 0x1p-25:
		return x
	case !(x >= -1):
		return float32(math.NaN())
	case x == -1:
		return float32(math.Inf(-1))
	case math.IsInf(float64(x), 1):
		return x
	}
	i := (int32(math.Float32bits(x+1)) - root) >> 23
	s := math.Float32frombits(uint32(0x40800000 - i<<23))
	f := math.Float32frombits(math.Float32bits(x)-uint32(i<<23)) + FMA(s, 0.25, -1)
	return logOf(float32(i), f)
}

// quarters returns i and r with t = i·π/2 + r for the nearest whole number i, for 0 ≤ t ≤ quartersTo.
func quarters(t float32) (i uint32, r float32) {
	n := float32(math.RoundToEven(float64(float32(t * (2 / math.Pi)))))
	r = FMA(-n, 0x1.921fb6p0, t)
	r = FMA(-n, -0x1.777a5cp-25, r)
	return uint32(n), FMA(-n, -0x1.ee59dap-50, r)
}

// quartersTo is where the parts of π/2 end to suffice. Beyond, sin and cos are their definition.
const quartersTo = 102900

// sinCosNear are sin r and cos r for |r| ≤ 0.8.
func sinCosNear(r float32) (sin, cos float32) {
	z := float32(r * r)
	return FMA(float32(poly(z, sineNear[:])*z), r, r), poly(z, cosineNear[:])
}

// sin is sin x, x in radians.
func sin(x float32) float32 {
	if !(abs(x) <= quartersTo) {
		return float32(math.Sin(float64(x)))
	}
	i, r := quarters(abs(x))
	y, other := sinCosNear(r)
	if i&1 != 0 {
		y = other
	}
	return flip(y, math.Float32bits(x)^i<<30)
}

// cos is cos x, x in radians.
func cos(x float32) float32 {
	if !(abs(x) <= quartersTo) {
		return float32(math.Cos(float64(x)))
	}
	i, r := quarters(abs(x))
	other, y := sinCosNear(r)
	if i&1 != 0 {
		y = other
	}
	return flip(y, (i+1)<<30)
}

// flip is x, or -x where the highest bit of sign is set.
func flip(x float32, sign uint32) float32 {
	return math.Float32frombits(math.Float32bits(x) ^ sign&signBit)
}

// exp2 is 2ˣ.
func exp2(x float32) float32 {
	switch { // NaN stays
	case x < -150:
		x = -150
	case x > 128:
		x = 128
	}
	n := float32(math.RoundToEven(float64(x)))
	return scale(poly(float32((x-n)*math.Ln2), exponential[:]), n)
}

// log2 is the logarithm to base 2.
func log2(x float32) float32 {
	if !(x > 0 && x <= math.MaxFloat32) {
		return log(x)
	}
	e, f := normal(x)
	return FMA(log1pNear(f), math.Log2E, e)
}

// log10 is the logarithm to base 10.
func log10(x float32) float32 {
	if !(x > 0 && x <= math.MaxFloat32) {
		return log(x)
	}
	e, f := normal(x)
	const high, low = 0x1.344p-2, math.Ln2/math.Ln10 - 0x1.344p-2
	return FMA(e, high, FMA(e, low, float32(log1pNear(f)*math.Log10E)))
}

// log1pNear is ln(1+f) for 1+f in [√½, √2).
func log1pNear(f float32) float32 {
	f2, y := bow(f)
	return f + FMA(-f2, 0.5, y)
}

// sinh is the hyperbolic sine.
func sinh(x float32) float32 {
	t := abs(x)
	if t < 1 {
		z := float32(t * t)
		return signed(FMA(float32(poly(z, sinhNear[:])*z), t, t), x)
	}
	h, rest := halfExp(t)
	return signed(h-rest, x)
}

// cosh is the hyperbolic cosine.
func cosh(x float32) float32 {
	h, rest := halfExp(abs(x))
	return h + rest
}

// halfExp returns eᵗ/2 and e⁻ᵗ/2 for t ≥ 0.
func halfExp(t float32) (h, rest float32) {
	if t > 89.5 {
		t = 89.5
	}
	n, r := powers(t)
	h = scale(poly(r, exponential[:]), n-1)
	return h, 0.25 / h
}

// atan is the arc tangent.
func atan(x float32) float32 {
	r := abs(x)
	big := r > 1
	if big {
		r = 1 / r
	}
	z := float32(r * r)
	y := FMA(float32(poly(z, arcNear[:])*z), r, r)
	if big {
		y = math.Pi/2 - y
	}
	return signed(y, x)
}

// atanSlope is the derivative of atan.
func atanSlope(x float32) float32 {
	c := float32(1)
	if abs(x) > 0x1p40 {
		c = 0x1p-64
	}
	s := x * c
	return c / FMA(s, s, c*c) * c
}

// pow is aᵇ.
func pow(a, b float32) float32 {
	t := abs(a)
	whole := float32(math.RoundToEven(float64(b))) == b
	switch {
	case b == 2:
		return a * a
	case b == 0, a == 1:
		return 1
	case a != a || b != b, a < 0 && !whole && t <= math.MaxFloat32:
		return float32(math.NaN())
	}
	var z, rest float32
	switch {
	case t == 1:
	case t == 0:
		z = b * float32(math.Inf(-1))
	case t > math.MaxFloat32:
		z = b * t
	default:
		h, l := log2InTwo(t)
		z = b * h
		if abs(z) < 200 {
			rest = float32(b*l) - FMA(-b, h, z)
		}
	}
	z = max(-150.5, min(z, 128.5))
	n := float32(math.RoundToEven(float64(z)))
	y := scale(poly(float32((z-n+rest)*math.Ln2), exponential[:]), n)
	if half := float32(b * 0.5); whole && float32(math.RoundToEven(float64(half))) != half {
		y = signed(y, a)
	}
	return y
}

// log2InTwo returns log₂ t in two parts, for 0 < t < Inf.
func log2InTwo(t float32) (h, l float32) {
	e, f := normal(t)
	r := 1 / (f + 2)
	s := float32(f * r)
	s2 := float32(FMA(-s, f, FMA(-s, 2, f)) * r)
	w := float32(s * s)
	w2 := float32((s+s)*s2) - FMA(-s, s, w)
	const third, third2 = 0x1.555556p-2, 1./3 - 0x1.555556p-2
	q := float32(poly(w, artanh[:]) * w)
	c := q + third
	p, p2 := product(w, w2, c, (third-c)+q+third2)
	u, u2 := product(s, s2, p, p2)
	h = s + u
	const scale, scale2 = 0x1.715476p1, 2*math.Log2E - 0x1.715476p1
	v, v2 := product(h, ((s-h)+u)+(s2+u2), scale, scale2)
	h = e + v
	return h, ((e - h) + v) + v2
}

// product is (a+a2)·(b+b2) in two parts, a2 and b2 being small.
func product(a, a2, b, b2 float32) (c, c2 float32) {
	c = float32(a * b)
	return c, FMA(a, b2, float32(a2*b)) - FMA(-a, b, c)
}

// The coefficients of the polynomials of erf, expm1, sin and cos, sinh, atan and log2InTwo, from the lowest.
var (
	errorNear = [...]float32{0.128379151225, -0.376124888659, 0.112817302346, -0.0267629157752, 0.0049872752279, -0.000595933874138}
	errorFar  = [...]float32{-8.49064308568e-05, -1.12820863724, -0.636016130447, -0.105437859893, 0.0234448425472, -0.003642906202,
		0.000358403282007, -1.8375016225e-05}
	lessOne    = [...]float32{0.499999970198, 0.166665166616, 0.0416675545275, 0.00836997572333, 0.0013862795895}
	sineNear   = [...]float32{-0.166666537523, 0.00833209510893, -0.000195055428776}
	cosineNear = [...]float32{1, -0.5, 0.0416666530073, -0.00138875772245, 2.44554594246e-05}
	sinhNear   = [...]float32{0.166666671634, 0.0083333067596, 0.000198438734515, 2.77605977317e-06}
	arcNear    = [...]float32{-0.333333134651, 0.199989065528, -0.142675697803, 0.109678760171, -0.0844562426209, 0.0586316883564,
		-0.0318118743598, 0.0112386327237, -0.0018630361883}
	artanh = [...]float32{0.200000464916, 0.142760753632, 0.11657845974}
)
