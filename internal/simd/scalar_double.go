package simd

import "math"

// What the assembly computes of one float64: the functions of internal/simd/asm/double.go, operation by operation; see scalar.go.
// XOf is of one number what XDouble is of a slice.

// polyDouble is the polynomial in x whose coefficients are given from the lowest, by Horner's rule.
func polyDouble(x float64, coefficients []float64) float64 {
	last := len(coefficients) - 1
	sum := coefficients[last]
	for i := last - 1; i >= 0; i-- {
		sum = math.FMA(sum, x, coefficients[i])
	}
	return sum
}

// ln 2 in two parts, of which the first times a small whole number is exact.
const ln2HighDouble, ln2LowDouble = 0x1.62e42feep-1, 0x1.a39ef35793c76p-33

// shifter is a number near which float64 are whole: what is added to it is rounded, ties to even, and is in its last bits.
const shifter = 0x1.8p52

// powersDouble returns t = n + shifter, n = round(x/ln 2) and x - n·ln 2.
func powersDouble(x float64) (t, n, r float64) {
	t = math.FMA(x, math.Log2E, shifter)
	n = t - shifter
	return t, n, math.FMA(-n, ln2LowDouble, math.FMA(-n, ln2HighDouble, x))
}

// nearDouble is eʳ - 1 for |r| ≤ ln(2)/2.
func nearDouble(r float64) float64 { return math.FMA(float64(r*r), polyDouble(r, lessOneDouble[:]), r) }

// power2Double is 2ⁿ⁺ᵇ⁻¹⁰²³ for t = n + shifter and the bias b.
func power2Double(t float64, bias uint64) float64 {
	return math.Float64frombits((math.Float64bits(t) + bias) << 52)
}

// within is x, but at least low and at most high; NaN stays.
func within(low, x, high float64) float64 {
	switch {
	case x < low:
		return low
	case x > high:
		return high
	}
	return x
}

// ExpOf is eˣ.
func ExpOf(x float64) float64 {
	_, n, r := powersDouble(within(-746, x, 710))
	t := math.FMA(n, 0.5, shifter)
	rest := n - (t - shifter) + shifter
	return float64((nearDouble(r)+1)*power2Double(t, 1023)) * power2Double(rest, 1023)
}

// Expm1Of is eˣ - 1.
func Expm1Of(x float64) float64 {
	if math.Abs(x) < 0x1p-54 {
		return x
	}
	t, _, r := powersDouble(within(-40, x, 710))
	half := power2Double(t, 1022)
	y := math.FMA(half, nearDouble(r), half-0.5)
	return y + y
}

const rootDouble = 0x3fe6a09e667f3bcd // the bits of √½

// LogOf is ln x.
func LogOf(x float64) float64 {
	switch {
	case !(x >= 0):
		return math.NaN()
	case x == 0:
		return math.Inf(-1)
	case x > math.MaxFloat64:
		return x
	}
	return logOfDouble(normalDouble(x))
}

// normalDouble returns e and f with x = 2ᵉ·(1+f) and 1+f in [√½, √2), for 0 < x < Inf.
func normalDouble(x float64) (e, f float64) {
	if x < 0x1p-1022 {
		x, e = x*0x1p54, -54
	}
	i := math.Float64bits(x) + 0x3ff0000000000000 - rootDouble
	return e + float64(int64(i>>52)-1023), math.Float64frombits(i&0x000fffffffffffff+rootDouble) - 1
}

// logOfDouble is ln(2ᵉ·(1+f)).
func logOfDouble(e, f float64) float64 {
	s := f / (f + 2)
	z := float64(s * s)
	h := float64(float64(f*0.5) * f)
	y := math.FMA(s, math.FMA(z, polyDouble(z, quotientDouble[:]), h), float64(e*ln2LowDouble))
	return math.FMA(e, ln2HighDouble, f-(h-y))
}

// Log1pOf is ln(1+x).
func Log1pOf(x float64) float64 {
	switch {
	case math.Abs(x) < 0x1p-54:
		return x
	case !(x >= -1):
		return math.NaN()
	case x == -1:
		return math.Inf(-1)
	case x > math.MaxFloat64:
		return x
	}
	return logOfDouble(normalOf1Double(x))
}

// normalOf1Double returns e and f with 1+x = 2ᵉ·(1+f) and 1+f in [√½, √2), for -1 < x < Inf.
func normalOf1Double(x float64) (e, f float64) {
	i := math.Float64bits(x+1) + 0x3ff0000000000000 - rootDouble
	down := i&0xfff0000000000000 - 0x3ff0000000000000
	s := math.Float64frombits(0x4010000000000000 - down)
	return float64(int64(i>>52) - 1023), math.Float64frombits(math.Float64bits(x)-down) + math.FMA(s, 0.25, -1)
}

// TanhOf is the hyperbolic tangent.
func TanhOf(x float64) float64 {
	t := math.Abs(x)
	y := 1.0
	if t < 0.625 {
		z := float64(t * t)
		y = t + float64(float64(polyDouble(z, tangentDouble[:])*z)*t)/polyDouble(z, belowTangentDouble[:])
	} else {
		y -= 2 / (ExpOf(t+t) + 1)
	}
	return math.Copysign(y, x)
}

// SigmoidOf is 1/(1+e⁻ˣ).
func SigmoidOf(x float64) float64 {
	e := ExpOf(-math.Abs(x))
	if x < 0 {
		return e / (e + 1)
	}
	return 1 / (e + 1)
}

// log1pExpDouble is ln(1 + e to the -|x|); of NaN it is some number.
func log1pExpDouble(x float64) float64 { return logOfDouble(normalOf1Double(ExpOf(-math.Abs(x)))) }

// SoftplusOf is ln(1+eˣ), and LogSigmoidOf -ln(1+e⁻ˣ).
func SoftplusOf(x float64) float64 {
	y := x // NaN stays
	if x < 0 {
		y = 0
	}
	return y + log1pExpDouble(x)
}

func LogSigmoidOf(x float64) float64 {
	y := x
	if x > 0 {
		y = 0
	}
	return y - log1pExpDouble(x)
}

// SiluOf is x·SigmoidOf(x).
func SiluOf(x float64) float64 { return x * SigmoidOf(x) }

// Gradients: dy times a derivative.
func tanhGradDouble(y, dy float64) float64    { return dy * math.FMA(-y, y, 1) }
func sigmoidGradDouble(y, dy float64) float64 { return dy * float64(y*(1-y)) }
func siluGradDouble(x, dy float64) float64 {
	s := SigmoidOf(x)
	return dy * float64(s*math.FMA(x, 1-s, 1))
}

// The coefficients of the polynomials of exp, log and tanh, from the lowest.
var (
	tangentDouble      = [...]float64{-1.61468768441708447952e3, -9.92877231001918586564e1, -9.64399179425052238628e-1}
	belowTangentDouble = [...]float64{4.84406305325125486048e3, 2.23548839060100448583e3, 1.12811678491632931402e2, 1}
	lessOneDouble      = [...]float64{0.5000000000000005176, 0.1666666666666658943, 0.04166666666657681527, 0.008333333333389468545,
		0.001388888893154152399, 0.0001984126971914131069, 0.00002480150530494976582, 2.755740747337409622e-6, 2.762602453101165849e-7,
		2.505377901465808787e-8}
	quotientDouble = [...]float64{0.6666666666666734414, 0.3999999999941467033, 0.2857142874238911844, 0.2222219857305086608,
		0.1818356433231944457, 0.1531405040809504996, 0.1479595102554647465}
)
