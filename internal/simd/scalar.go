package simd

import "math"

// fma is a·b + c. The product of two float32 is exact in float64, so only a sum
// that falls on the very middle between two float32 can round differently from
// the assembly's.
func fma(a, b, c float32) float32 { return float32(float64(a)*float64(b) + float64(c)) }

func exp(x float32) float32  { return float32(math.Exp(float64(x))) }
func sqrt(x float32) float32 { return float32(math.Sqrt(float64(x))) }

func sigmoid(x float64) float64 {
	if x < 0 {
		e := math.Exp(x)
		return e / (1 + e)
	}
	return 1 / (1 + math.Exp(-x))
}

// phi is the normal distribution Φ.
func phi(x float64) float64 { return 0.5 * math.Erfc(-x/math.Sqrt2) }

// density is the normal density φ.
func density(x float64) float64 { return math.Exp(-x*x/2) / math.Sqrt(2*math.Pi) }

// gelu is x·Φ(x), at the infinities its limits.
func gelu(x float64) float64 {
	if x < -farTail {
		return 0
	}
	return x * phi(x)
}

// geluSlope is its derivative, Φ(x) + x·φ(x), at the infinities the limits.
func geluSlope(x float64) float64 {
	x = max(-farTail, min(x, farTail))
	return phi(x) + x*density(x)
}

// farTail is where Φ and φ of -x are 0 in float64.
const farTail = 40
