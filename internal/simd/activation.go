package simd

import "math"

// Relu does dst[i] = max(x[i], 0); NaN stays.
func Relu(dst, x []float32) {
	same("Relu", len(dst), len(x))
	for i, v := range x {
		dst[i] = max(v, 0)
	}
}

// ReluGrad does dst[i] = dy[i] where x[i] > 0, else 0. The result of Relu serves
// as x as well as its argument.
func ReluGrad(dst, x, dy []float32) {
	same("ReluGrad", len(dst), len(x), len(dy))
	for i, v := range x {
		if v > 0 {
			dst[i] = dy[i]
		} else {
			dst[i] = 0
		}
	}
}

// Gelu does dst[i] = x·Φ(x) for x = x[i], with Φ(x) = ½(1 + erf(x/√2)): the
// exact form, not the tanh approximation. The absolute error is below 2e-7
// times max(1, |x|).
func Gelu(dst, x []float32) {
	same("Gelu", len(dst), len(x))
	for i, v := range x {
		dst[i] = float32(float64(v) * phi(float64(v)))
	}
}

// GeluGrad does dst[i] = dy·(Φ(x) + x·φ(x)) for x = x[i], dy = dy[i], φ the
// normal density.
func GeluGrad(dst, x, dy []float32) {
	same("GeluGrad", len(dst), len(x), len(dy))
	for i, v := range x {
		x := float64(v)
		dst[i] = dy[i] * float32(phi(x)+x*math.Exp(-x*x/2)/math.Sqrt(2*math.Pi))
	}
}

// phi is the normal distribution Φ.
func phi(x float64) float64 { return 0.5 * math.Erfc(-x/math.Sqrt2) }

// Silu does dst[i] = x·σ(x) for x = x[i], σ the function of Sigmoid.
func Silu(dst, x []float32) {
	same("Silu", len(dst), len(x))
	for i, v := range x {
		dst[i] = float32(float64(v) * sigmoid(float64(v)))
	}
}

// SiluGrad does dst[i] = dy·σ(x)·(1 + x·(1-σ(x))) for x = x[i], dy = dy[i].
func SiluGrad(dst, x, dy []float32) {
	same("SiluGrad", len(dst), len(x), len(dy))
	for i, v := range x {
		x, s := float64(v), sigmoid(float64(v))
		dst[i] = dy[i] * float32(s*(1+x*(1-s)))
	}
}

// TanhGrad does dst[i] = dy[i]·(1 - y[i]²), y the result of Tanh.
func TanhGrad(dst, y, dy []float32) {
	same("TanhGrad", len(dst), len(y), len(dy))
	for i, v := range y {
		dst[i] = dy[i] * (1 - v*v)
	}
}

// SigmoidGrad does dst[i] = dy[i]·y[i]·(1 - y[i]), y the result of Sigmoid.
func SigmoidGrad(dst, y, dy []float32) {
	same("SigmoidGrad", len(dst), len(y), len(dy))
	for i, v := range y {
		dst[i] = dy[i] * (v * (1 - v))
	}
}
