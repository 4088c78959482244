package simd

import "math"

// Exponentials, logarithms and powers of one element, beyond exp and log; see scalar.go.

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
	return logOf(normalOf1(x))
}

// normalOf1 returns e and f with 1+x = 2ᵉ·(1+f) and 1+f in [√½, √2), for -1 < x < Inf.
func normalOf1(x float32) (e, f float32) {
	i := (int32(math.Float32bits(x+1)) - root) >> 23
	s := math.Float32frombits(uint32(0x40800000 - i<<23))
	return float32(i), math.Float32frombits(math.Float32bits(x)-uint32(i<<23)) + FMA(s, 0.25, -1)
}

// asinh is the inverse of sinh.
func asinh(x float32) float32 {
	t := abs(x)
	u := t + float32(t*t)/(sqrt(FMA(t, t, 1))+1)
	return signed(log1pOrTwice(t, u), x)
}

// acosh is the inverse of cosh.
func acosh(x float32) float32 {
	if x < 1 {
		return float32(math.NaN())
	}
	d := x - 1
	return log1pOrTwice(x, d+sqrt(float32(d*(x+1))))
}

// log1pOrTwice is ln(1+u), and ln(2t) where t is large, for t and u not below 0.
func log1pOrTwice(t, u float32) float32 {
	large := t > 0x1p30
	if large {
		u = t
	}
	if !(u <= math.MaxFloat32) {
		return u
	}
	e, f := normalOf1(u)
	if large {
		e++
	}
	return logOf(e, f)
}

// atanh is the inverse of tanh.
func atanh(x float32) float32 {
	t := abs(x)
	two := t + t
	u := two / (1 - t)
	if t < 0.5 {
		u = FMA(u, t, two)
	}
	switch {
	case !(t <= 1):
		return float32(math.NaN())
	case u > math.MaxFloat32:
		return signed(u, x)
	}
	return signed(float32(logOf(normalOf1(u))*0.5), x)
}

// asinhSlope and acoshSlope are the derivatives of asinh and acosh.
func asinhSlope(x float32) float32 {
	c := shrink(x)
	s := float32(x * c)
	return c / sqrt(FMA(s, s, c*c))
}

func acoshSlope(x float32) float32 {
	c := shrink(x)
	return c / sqrt(float32(float32((x-1)*c)*float32((x+1)*c)))
}

// shrink is 2⁻⁶⁴ for large x and else 1.
func shrink(x float32) float32 {
	if abs(x) > 0x1p40 {
		return 0x1p-64
	}
	return 1
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

// The coefficients of the polynomials of expm1, sinh and log2InTwo, from the lowest.
var (
	lessOne  = [...]float32{0.499999970198, 0.166665166616, 0.0416675545275, 0.00836997572333, 0.0013862795895}
	sinhNear = [...]float32{0.166666671634, 0.0083333067596, 0.000198438734515, 2.77605977317e-06}
	artanh   = [...]float32{0.200000464916, 0.142760753632, 0.11657845974}
)
