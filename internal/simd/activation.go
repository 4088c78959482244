package simd

import "github.com/gorun-spmd/gorun/internal/activation"

// Relu does dst[i] = x[i], but 0 where x[i] < 0; NaN and -0 stay.
func Relu(dst, x []float32) {
	same("Relu", len(dst), len(x))
	l := Writing(dst, x)
	l.relu(dst, x)
	l.Done()
}

func (l Level) relu(dst, x []float32) {
	if l == Scalar {
		for i, v := range x {
			if v < 0 {
				v = 0
			}
			dst[i] = v
		}
		return
	}
	for i := 0; i < len(dst); i += chunk {
		reluVec(uint8(l), &dst[i], &x[i], min(chunk, len(dst)-i))
	}
}

// ReluGrad does dst[i] = dy[i], but 0 where x[i] <= 0. The result of Relu serves
// as x as well as its argument.
func ReluGrad(dst, x, dy []float32) {
	same("ReluGrad", len(dst), len(x), len(dy))
	l := Writing(dst, x, dy)
	l.reluGrad(dst, x, dy)
	l.Done()
}

func (l Level) reluGrad(dst, x, dy []float32) {
	if l == Scalar {
		for i, v := range x {
			if v <= 0 {
				dst[i] = 0
			} else { // also of NaN
				dst[i] = dy[i]
			}
		}
		return
	}
	for i := 0; i < len(dst); i += chunk {
		reluGradVec(uint8(l), &dst[i], &x[i], &dy[i], min(chunk, len(dst)-i))
	}
}

// Gelu does dst[i] = x·Φ(x) for x = x[i], with Φ(x) = ½(1 + erf(x/√2)): the
// exact form, not the tanh approximation. The absolute error is below 1e-7
// times max(1, |x|). For -Inf it is 0, the limit, and for +Inf +Inf; PyTorch gives NaN
// for the first, and for the second NaN in float32 and +Inf in float64.
func Gelu(dst, x []float32) {
	same("Gelu", len(dst), len(x))
	l := computing(dst, x)
	l.gelu(dst, x)
	l.Done()
}

func (l Level) gelu(dst, x []float32) {
	if l == Scalar {
		for i, v := range x {
			dst[i] = float32(activation.Gelu(float64(v)))
		}
		return
	}
	for i := 0; i < len(dst); i += chunk {
		geluVec(uint8(l), &dst[i], &x[i], min(chunk, len(dst)-i))
	}
}

// GeluGrad does dst[i] = dy·(Φ(x) + x·φ(x)) for x = x[i], dy = dy[i], φ the
// normal density. For x = -Inf and +Inf that is dy·0 and dy·1, the limits (in PyTorch
// NaN).
func GeluGrad(dst, x, dy []float32) {
	same("GeluGrad", len(dst), len(x), len(dy))
	l := computing(dst, x, dy)
	l.geluGrad(dst, x, dy)
	l.Done()
}

func (l Level) geluGrad(dst, x, dy []float32) {
	if l == Scalar {
		for i, v := range x {
			dst[i] = dy[i] * float32(activation.GeluSlope(float64(v)))
		}
		return
	}
	for i := 0; i < len(dst); i += chunk {
		geluGradVec(uint8(l), &dst[i], &x[i], &dy[i], min(chunk, len(dst)-i))
	}
}

// GeluTanh does dst[i] = x·½(1 + tanh(√(2/π)·(x + 0.044715·x³))) for x = x[i], the form of
// Gelu that GPT-2 and others were trained with. At the infinities it is as Gelu.
func GeluTanh(dst, x []float32) {
	same("GeluTanh", len(dst), len(x))
	l := computing(dst, x)
	l.geluTanh(dst, x)
	l.Done()
}

func (l Level) geluTanh(dst, x []float32) {
	if l == Scalar {
		for i, v := range x {
			dst[i] = float32(activation.GeluTanh(float64(v)))
		}
		return
	}
	for i := 0; i < len(dst); i += chunk {
		geluTanhVec(uint8(l), &dst[i], &x[i], min(chunk, len(dst)-i))
	}
}

// GeluTanhGrad does dst[i] = dy[i] times the derivative of GeluTanh at x[i], 0 and 1 at
// the infinities.
func GeluTanhGrad(dst, x, dy []float32) {
	same("GeluTanhGrad", len(dst), len(x), len(dy))
	l := computing(dst, x, dy)
	l.geluTanhGrad(dst, x, dy)
	l.Done()
}

func (l Level) geluTanhGrad(dst, x, dy []float32) {
	if l == Scalar {
		for i, v := range x {
			dst[i] = dy[i] * float32(activation.GeluTanhSlope(float64(v)))
		}
		return
	}
	for i := 0; i < len(dst); i += chunk {
		geluTanhGradVec(uint8(l), &dst[i], &x[i], &dy[i], min(chunk, len(dst)-i))
	}
}

// Silu does dst[i] = x·σ(x) for x = x[i], σ the function of Sigmoid. For -Inf it
// is NaN, as in PyTorch.
func Silu(dst, x []float32) {
	same("Silu", len(dst), len(x))
	l := computing(dst, x)
	l.silu(dst, x)
	l.Done()
}

func (l Level) silu(dst, x []float32) {
	if l == Scalar {
		for i, v := range x {
			dst[i] = float32(float64(v) * activation.Sigmoid(float64(v)))
		}
		return
	}
	for i := 0; i < len(dst); i += chunk {
		siluVec(uint8(l), &dst[i], &x[i], min(chunk, len(dst)-i))
	}
}

// SiluGrad does dst[i] = dy·σ(x)·(1 + x·(1-σ(x))) for x = x[i], dy = dy[i]. For ±Inf
// it is NaN, as in PyTorch.
func SiluGrad(dst, x, dy []float32) {
	same("SiluGrad", len(dst), len(x), len(dy))
	l := computing(dst, x, dy)
	l.siluGrad(dst, x, dy)
	l.Done()
}

func (l Level) siluGrad(dst, x, dy []float32) {
	if l == Scalar {
		for i, v := range x {
			x, s := float64(v), activation.Sigmoid(float64(v))
			dst[i] = dy[i] * float32(s*(1+x*(1-s)))
		}
		return
	}
	for i := 0; i < len(dst); i += chunk {
		siluGradVec(uint8(l), &dst[i], &x[i], &dy[i], min(chunk, len(dst)-i))
	}
}

// TanhGrad does dst[i] = dy[i]·(1 - y[i]²), y the result of Tanh.
func TanhGrad(dst, y, dy []float32) {
	same("TanhGrad", len(dst), len(y), len(dy))
	l := Writing(dst, y, dy)
	l.tanhGrad(dst, y, dy)
	l.Done()
}

func (l Level) tanhGrad(dst, y, dy []float32) {
	if l == Scalar {
		for i, v := range y {
			dst[i] = dy[i] * fma(-v, v, 1)
		}
		return
	}
	for i := 0; i < len(dst); i += chunk {
		tanhGradVec(uint8(l), &dst[i], &y[i], &dy[i], min(chunk, len(dst)-i))
	}
}

// SigmoidGrad does dst[i] = dy[i]·y[i]·(1 - y[i]), y the result of Sigmoid.
func SigmoidGrad(dst, y, dy []float32) {
	same("SigmoidGrad", len(dst), len(y), len(dy))
	l := Writing(dst, y, dy)
	l.sigmoidGrad(dst, y, dy)
	l.Done()
}

func (l Level) sigmoidGrad(dst, y, dy []float32) {
	if l == Scalar {
		for i, v := range y {
			dst[i] = dy[i] * (v * (1 - v))
		}
		return
	}
	for i := 0; i < len(dst); i += chunk {
		sigmoidGradVec(uint8(l), &dst[i], &y[i], &dy[i], min(chunk, len(dst)-i))
	}
}
