package simd

import "math"

// What the assembly computes of one element, in plain Go: the functions of internal/simd/asm/functions.go, operation by
// operation, so that it has their bits. A product that is rounded before it is added to is converted, or the compiler
// may fuse the two.

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

// atLeast is x, or low if x is below it; NaN stays.
func atLeast(low, x float32) float32 {
	if x < low {
		return low
	}
	return x
}

// floor is the largest whole number that is not above x, and ceil the smallest one that is not below; trunc has no fraction.
func floor(x float32) float32     { return float32(math.Floor(float64(x))) }
func ceil(x float32) float32      { return float32(math.Ceil(float64(x))) }
func trunc(x float32) float32     { return float32(math.Trunc(float64(x))) }
func roundEven(x float32) float32 { return float32(math.RoundToEven(float64(x))) }

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

// The coefficients of the polynomials of exp and log, from the lowest.
var (
	exponential = [...]float32{1, 1, 0.50000000271, 0.166665766464, 0.04166637408, 0.0083632350724, 0.00139412183683}
	logarithm   = [...]float32{0.333333126041, -0.250000095995, 0.200021186567, -0.166679958507, 0.142195524007, -0.124055889949,
		0.118881620676, -0.116756513143, 0.067466403058}
)
