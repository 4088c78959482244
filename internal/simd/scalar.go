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
