package simd

import "math"

// Functions of angles, of one element; see scalar.go.

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

// tan is tan x, x in radians.
func tan(x float32) float32 {
	if !(abs(x) <= quartersTo) {
		return float32(math.Tan(float64(x)))
	}
	i, r := quarters(abs(x))
	y, under := sinCosNear(r)
	if i&1 != 0 {
		y, under = under, y
	}
	return flip(y/under, math.Float32bits(x)^i<<31)
}

// arc returns y = arcsin s for s = t ≤ ½, and else for s = √((1-t)/2); big says which.
func arc(t float32) (big bool, y float32) {
	s, z := t, float32(t*t)
	if big = t > 0.5; big {
		z = FMA(-t, 0.5, 0.5)
		s = sqrt(z)
	}
	return big, FMA(float32(poly(z, arcSineNear[:])*z), s, s)
}

// asin is the arc sine.
func asin(x float32) float32 {
	big, y := arc(abs(x))
	if big {
		y = FMA(-y, 2, math.Pi/2)
	}
	return signed(y, x)
}

// acos is the arc cosine.
func acos(x float32) float32 {
	switch big, y := arc(abs(x)); {
	case !big:
		return math.Pi/2 - flip(y, math.Float32bits(x))
	case x < 0:
		return FMA(-y, 2, math.Pi)
	default:
		return y + y
	}
}

// beside is √(1-x²).
func beside(x float32) float32 { return sqrt(float32((1 - x) * (x + 1))) }

// atan is the arc tangent.
func atan(x float32) float32 {
	r := abs(x)
	big := r > 1
	if big {
		r = 1 / r
	}
	y := atanNear(r)
	if big {
		y = math.Pi/2 - y
	}
	return signed(y, x)
}

// atanNear is the arc tangent for 0 ≤ r ≤ 1.
func atanNear(r float32) float32 {
	z := float32(r * r)
	return FMA(float32(poly(z, arcNear[:])*z), r, r)
}

// atanSlope is the derivative of atan.
func atanSlope(x float32) float32 {
	c := shrink(x)
	s := x * c
	return c / FMA(s, s, c*c) * c
}

// The coefficients of the polynomials of sin and cos, asin, and atan, from the lowest.
var (
	sineNear    = [...]float32{-0.166666537523, 0.00833209510893, -0.000195055428776}
	cosineNear  = [...]float32{1, -0.5, 0.0416666530073, -0.00138875772245, 2.44554594246e-05}
	arcSineNear = [...]float32{1.6666752422e-1, 7.4953002686e-2, 4.5470025998e-2, 2.4181311049e-2, 4.2163199048e-2}
	arcNear     = [...]float32{-0.333333134651, 0.199989065528, -0.142675697803, 0.109678760171, -0.0844562426209, 0.0586316883564,
		-0.0318118743598, 0.0112386327237, -0.0018630361883}
)
