package simd

import (
	"math"

	"github.com/gorun-spmd/gorun/internal/activation"
)

// unary has f, of this level of Writing, compute dst from x.
func (l Level) unary(op string, f func(l Level, dst, x []float32), dst, x []float32) {
	same(op, len(dst), len(x))
	f(l, dst, x)
	l.Done()
}

// each does dst[i] = plain(x[i]), by kernel where there is assembly.
func (l Level) each(kernel func(level uint8, dst, x *float32, n int), plain func(float64) float64, dst, x []float32) {
	if l == Scalar {
		for i, v := range x {
			dst[i] = float32(plain(float64(v)))
		}
		return
	}
	for i := 0; i < len(dst); i += chunk {
		kernel(uint8(l), &dst[i], &x[i], min(chunk, len(dst)-i))
	}
}

// Exp does dst[i] = eˣ for x = x[i], within 1 ulp over the whole range: +Inf
// above 88.72, subnormal results where they belong, 0 below -103.97.
func Exp(dst, x []float32) { Writing(dst, x).unary("Exp", Level.exp, dst, x) }

func (l Level) exp(dst, x []float32) { l.each(expVec, math.Exp, dst, x) }

// Log does dst[i] = ln x[i], within 1 ulp; -Inf for 0, NaN for x < 0.
func Log(dst, x []float32) { computing(dst, x).unary("Log", Level.log, dst, x) }

func (l Level) log(dst, x []float32) { l.each(logVec, math.Log, dst, x) }

// Tanh does dst[i] = tanh x[i], within 2 ulp.
func Tanh(dst, x []float32) { computing(dst, x).unary("Tanh", Level.tanh, dst, x) }

func (l Level) tanh(dst, x []float32) { l.each(tanhVec, math.Tanh, dst, x) }

// Sigmoid does dst[i] = 1/(1+e⁻ˣ) for x = x[i], within 2 ulp on both sides.
func Sigmoid(dst, x []float32) { computing(dst, x).unary("Sigmoid", Level.sigmoid, dst, x) }

func (l Level) sigmoid(dst, x []float32) { l.each(sigmoidVec, activation.Sigmoid, dst, x) }

// Sqrt does dst[i] = √x[i], correctly rounded.
func Sqrt(dst, x []float32) { Writing(dst, x).unary("Sqrt", Level.sqrt, dst, x) }

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
func Rsqrt(dst, x []float32) { Writing(dst, x).unary("Rsqrt", Level.rsqrt, dst, x) }

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
func Abs(dst, x []float32) { Writing(dst, x).unary("Abs", Level.abs, dst, x) }

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
