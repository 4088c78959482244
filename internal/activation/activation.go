// Package activation defines the sigmoid and gelus of one element in float64.
package activation

import "math"

// Sigmoid is 1/(1+e⁻ˣ), and does not overflow for any x.
func Sigmoid(x float64) float64 {
	if x < 0 {
		e := math.Exp(x)
		return e / (1 + e)
	}
	return 1 / (1 + math.Exp(-x))
}

// Φ(-x) and its derivative φ(-x) are 0 in float64 from x = farTail on.
const farTail = 40

// phi is Φ, the distribution function of the standard normal distribution.
func phi(x float64) float64 { return 0.5 * math.Erfc(-x/math.Sqrt2) }

// Gelu is x·Φ(x), and its limits at the infinities.
func Gelu(x float64) float64 {
	if x < -farTail {
		return 0
	}
	return x * phi(x)
}

// GeluSlope is the derivative of Gelu, Φ(x) + x·φ(x), and its limits at the infinities.
func GeluSlope(x float64) float64 {
	x = max(-farTail, min(x, farTail))
	return phi(x) + x*math.Exp(-0.5*x*x)/math.Sqrt(2*math.Pi)
}

// Twice the argument of the tanh in GeluTanh is linear·x + cubic·x³.
const (
	linear = 2 * 0.79788456080286535588 // 2·√(2/π)
	cubic  = 0.044715 * linear
)

// GeluTanh is x·½(1 + tanh(√(2/π)·(x + 0.044715·x³))), and its limits at the infinities.
// It is computed as x·Sigmoid of twice the argument of the tanh.
func GeluTanh(x float64) float64 {
	if x < -farTail {
		return 0
	}
	return x * Sigmoid(bend(x))
}

// GeluTanhSlope is the derivative of GeluTanh, and its limits at the infinities.
func GeluTanhSlope(x float64) float64 {
	x = max(-farTail, min(x, farTail))
	v := bend(x)
	return Sigmoid(v) + x*Sigmoid(v)*Sigmoid(-v)*(linear+3*cubic*x*x)
}

func bend(x float64) float64 { return x * (linear + cubic*x*x) }
