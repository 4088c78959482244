// Package activation defines the sigmoid, the gelus and their kin of one element in float64.
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

// Softplus is ln(1+eˣ), and does not overflow for any x.
func Softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// flat is from where on tanh(ln(1+eˣ)) is 1 in float64.
const flat = 40

// Mish is x·tanh(ln(1+eˣ)).
func Mish(x float64) float64 { return x * math.Tanh(Softplus(x)) }

// MishSlope is the derivative of Mish, and its limit at +Inf.
func MishSlope(x float64) float64 {
	x = min(x, flat)
	t := math.Tanh(Softplus(x))
	return t + x*(1-t)*(1+t)*Sigmoid(x)
}

// Hardsigmoid is min(max(x+3, 0), 6)/6.
func Hardsigmoid(x float64) float64 { return min(max(x+3, 0), 6) / 6 }

// HardsigmoidSlope is the derivative of Hardsigmoid, and 1/6 at the corners.
func HardsigmoidSlope(x float64) float64 {
	if math.Abs(x) <= 3 {
		return 1. / 6
	}
	return 0
}

// HardswishSlope is the derivative of x·Hardsigmoid(x), and at the corners that between them.
func HardswishSlope(x float64) float64 {
	switch {
	case x < -3:
		return 0
	case x > 3:
		return 1
	}
	return (2*x + 3) / 6
}

// ELU is x where it is above 0, and eˣ-1 elsewhere.
func ELU(x float64) float64 {
	if x > 0 {
		return x
	}
	return math.Expm1(x)
}

// ELUSlope is the derivative of ELU.
func ELUSlope(x float64) float64 { return math.Exp(min(x, 0)) }
