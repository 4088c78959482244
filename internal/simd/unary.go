package simd

import (
	"math"

	"github.com/gorun-spmd/gorun/internal/activation"
)

// Exp does dst[i] = eˣ for x = x[i], within 1 ulp over the whole range: +Inf
// above 88.72, subnormal results where they belong, 0 below -103.97.
func Exp(dst, x []float32) {
	same("Exp", len(dst), len(x))
	l := Writing(dst, x)
	l.exp(dst, x)
	l.Done()
}

func (l Level) exp(dst, x []float32) {
	if l == Scalar {
		for i, v := range x {
			dst[i] = exp(v)
		}
		return
	}
	for i := 0; i < len(dst); i += chunk {
		expVec(uint8(l), &dst[i], &x[i], min(chunk, len(dst)-i))
	}
}

// Log does dst[i] = ln x[i], within 1 ulp; -Inf for 0, NaN for x < 0.
func Log(dst, x []float32) {
	same("Log", len(dst), len(x))
	l := computing(dst, x)
	l.log(dst, x)
	l.Done()
}

func (l Level) log(dst, x []float32) {
	if l == Scalar {
		for i, v := range x {
			dst[i] = float32(math.Log(float64(v)))
		}
		return
	}
	for i := 0; i < len(dst); i += chunk {
		logVec(uint8(l), &dst[i], &x[i], min(chunk, len(dst)-i))
	}
}

// Tanh does dst[i] = tanh x[i], within 2 ulp.
func Tanh(dst, x []float32) {
	same("Tanh", len(dst), len(x))
	l := computing(dst, x)
	l.tanh(dst, x)
	l.Done()
}

func (l Level) tanh(dst, x []float32) {
	if l == Scalar {
		for i, v := range x {
			dst[i] = float32(math.Tanh(float64(v)))
		}
		return
	}
	for i := 0; i < len(dst); i += chunk {
		tanhVec(uint8(l), &dst[i], &x[i], min(chunk, len(dst)-i))
	}
}

// Sigmoid does dst[i] = 1/(1+e⁻ˣ) for x = x[i], within 2 ulp on both sides.
func Sigmoid(dst, x []float32) {
	same("Sigmoid", len(dst), len(x))
	l := computing(dst, x)
	l.sigmoid(dst, x)
	l.Done()
}

func (l Level) sigmoid(dst, x []float32) {
	if l == Scalar {
		for i, v := range x {
			dst[i] = float32(activation.Sigmoid(float64(v)))
		}
		return
	}
	for i := 0; i < len(dst); i += chunk {
		sigmoidVec(uint8(l), &dst[i], &x[i], min(chunk, len(dst)-i))
	}
}

// Sqrt does dst[i] = √x[i], correctly rounded.
func Sqrt(dst, x []float32) {
	same("Sqrt", len(dst), len(x))
	l := Writing(dst, x)
	l.sqrt(dst, x)
	l.Done()
}

func (l Level) sqrt(dst, x []float32) {
	if l == Scalar {
		for i, v := range x {
			dst[i] = sqrt(v)
		}
		return
	}
	for i := 0; i < len(dst); i += chunk {
		sqrtVec(uint8(l), &dst[i], &x[i], min(chunk, len(dst)-i))
	}
}

// Rsqrt does dst[i] = 1/√x[i], each of the two operations correctly rounded.
func Rsqrt(dst, x []float32) {
	same("Rsqrt", len(dst), len(x))
	l := Writing(dst, x)
	l.rsqrt(dst, x)
	l.Done()
}

func (l Level) rsqrt(dst, x []float32) {
	if l == Scalar {
		for i, v := range x {
			dst[i] = 1 / sqrt(v)
		}
		return
	}
	for i := 0; i < len(dst); i += chunk {
		rsqrtVec(uint8(l), &dst[i], &x[i], min(chunk, len(dst)-i))
	}
}

// Abs does dst[i] = |x[i]|.
func Abs(dst, x []float32) {
	same("Abs", len(dst), len(x))
	l := Writing(dst, x)
	l.abs(dst, x)
	l.Done()
}

func (l Level) abs(dst, x []float32) {
	if l == Scalar {
		for i, v := range x {
			dst[i] = float32(math.Abs(float64(v)))
		}
		return
	}
	for i := 0; i < len(dst); i += chunk {
		absVec(uint8(l), &dst[i], &x[i], min(chunk, len(dst)-i))
	}
}
