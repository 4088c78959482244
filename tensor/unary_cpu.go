package tensor

import (
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/activation"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// Unary computes dst[i] = op(x[i]); dst may be x.
func (c *CPU) Unary(op UnaryOp, dt DType, dst, x unsafe.Pointer, n int) {
	switch dt {
	case Float32:
		d, s := sliceOf[float32](dst, n), sliceOf[float32](x, n)
		if n*8 < parallelFrom {
			unary32(op, d, s)
			return
		}
		parallel(n, 8, 64, func(lo, hi int) { unary32(op, d[lo:hi], s[lo:hi]) })
	case Float64:
		unaryFloat(op, sliceOf[float64](dst, n), sliceOf[float64](x, n))
	case Int8:
		unaryInt(op, sliceOf[int8](dst, n), sliceOf[int8](x, n))
	case Int16:
		unaryInt(op, sliceOf[int16](dst, n), sliceOf[int16](x, n))
	case Int32:
		unaryInt(op, sliceOf[int32](dst, n), sliceOf[int32](x, n))
	case Int64:
		unaryInt(op, sliceOf[int64](dst, n), sliceOf[int64](x, n))
	case Uint8:
		unaryInt(op, sliceOf[uint8](dst, n), sliceOf[uint8](x, n))
	}
}

// unary32 is the float32 case of Unary.
func unary32(op UnaryOp, dst, x []float32) {
	switch op {
	case OpNeg:
		simd.Scale(dst, x, -1)
	case OpAbs:
		simd.Abs(dst, x)
	case OpExp:
		simd.Exp(dst, x)
	case OpLog:
		simd.Log(dst, x)
	case OpSqrt:
		simd.Sqrt(dst, x)
	case OpRsqrt:
		simd.Rsqrt(dst, x)
	case OpTanh:
		simd.Tanh(dst, x)
	case OpSigmoid:
		simd.Sigmoid(dst, x)
	case OpRelu:
		simd.Relu(dst, x)
	case OpGelu:
		simd.Gelu(dst, x)
	case OpGeluTanh:
		simd.GeluTanh(dst, x)
	case OpSilu:
		simd.Silu(dst, x)
	case OpSquare:
		simd.Mul(dst, x, x)
	default:
		unaryFloat(op, dst, x)
	}
}

// unaryFloat computes in float64, one element at a time: the definition.
func unaryFloat[T float](op UnaryOp, dst, x []T) {
	f := unaryFunc(op)
	for i, v := range x {
		dst[i] = T(f(float64(v)))
	}
}

func unaryFunc(op UnaryOp) func(float64) float64 {
	switch op {
	case OpNeg:
		return func(x float64) float64 { return -x }
	case OpAbs:
		return math.Abs
	case OpExp:
		return math.Exp
	case OpLog:
		return math.Log
	case OpSqrt:
		return math.Sqrt
	case OpRsqrt:
		return func(x float64) float64 { return 1 / math.Sqrt(x) }
	case OpTanh:
		return math.Tanh
	case OpSigmoid:
		return activation.Sigmoid
	case OpRelu:
		return func(x float64) float64 {
			if x < 0 {
				return 0
			}
			return x
		}
	case OpGelu:
		return activation.Gelu
	case OpGeluTanh:
		return activation.GeluTanh
	case OpSilu:
		return func(x float64) float64 { return x * activation.Sigmoid(x) }
	case OpSquare:
		return func(x float64) float64 { return x * x }
	default:
		return sign
	}
}

func sign(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return x // zero, NaN
}

// unaryInt is Unary for the operators that integers have.
func unaryInt[T int8 | int16 | int32 | int64 | uint8](op UnaryOp, dst, x []T) {
	for i, v := range x {
		switch op {
		case OpNeg:
			v = -v
		case OpAbs:
			if v < 0 {
				v = -v
			}
		case OpRelu:
			v = max(v, 0)
		case OpSquare:
			v *= v
		case OpSign:
			v = T(min(max(int64(v), -1), 1))
		}
		dst[i] = v
	}
}

// UnaryGrad computes dx[i] = dy[i]·op'(x[i]), y[i] = op(x[i]); dx may be dy.
func (c *CPU) UnaryGrad(op UnaryOp, dt DType, dx, dy, x, y unsafe.Pointer, n int) {
	if dt == Float32 {
		d, g, a, b := sliceOf[float32](dx, n), sliceOf[float32](dy, n), sliceOf[float32](x, n), sliceOf[float32](y, n)
		if n*8 < parallelFrom {
			unaryGrad32(op, d, g, a, b)
			return
		}
		parallel(n, 8, 64, func(lo, hi int) { unaryGrad32(op, d[lo:hi], g[lo:hi], a[lo:hi], b[lo:hi]) })
		return
	}
	unaryGradFloat(op, sliceOf[float64](dx, n), sliceOf[float64](dy, n), sliceOf[float64](x, n), sliceOf[float64](y, n))
}

// unaryGrad32 is the float32 case of UnaryGrad.
func unaryGrad32(op UnaryOp, dx, dy, x, y []float32) {
	switch op {
	case OpNeg:
		simd.Scale(dx, dy, -1)
	case OpExp:
		simd.Mul(dx, dy, y)
	case OpLog:
		simd.Div(dx, dy, x)
	case OpTanh:
		simd.TanhGrad(dx, y, dy)
	case OpSigmoid:
		simd.SigmoidGrad(dx, y, dy)
	case OpRelu:
		simd.ReluGrad(dx, y, dy)
	case OpGelu:
		simd.GeluGrad(dx, x, dy)
	case OpGeluTanh:
		simd.GeluTanhGrad(dx, x, dy)
	case OpSilu:
		simd.SiluGrad(dx, x, dy)
	default:
		unaryGradFloat(op, dx, dy, x, y)
	}
}

// unaryGradFloat computes in float64, one element at a time: the definition.
func unaryGradFloat[T float](op UnaryOp, dx, dy, x, y []T) {
	f := unaryGradFunc(op)
	for i, g := range dy {
		dx[i] = T(f(float64(g), float64(x[i]), float64(y[i])))
	}
}

func unaryGradFunc(op UnaryOp) func(dy, x, y float64) float64 {
	switch op {
	case OpNeg:
		return func(dy, x, y float64) float64 { return -dy }
	case OpAbs:
		return func(dy, x, y float64) float64 { return dy * sign(x) }
	case OpExp:
		return func(dy, x, y float64) float64 { return dy * y }
	case OpLog:
		return func(dy, x, y float64) float64 { return dy / x }
	case OpSqrt:
		return func(dy, x, y float64) float64 { return dy / (2 * y) }
	case OpRsqrt: // d x^-½ = -½ x^-3/2
		return func(dy, x, y float64) float64 { return dy * -0.5 * y * y * y }
	case OpTanh:
		return func(dy, x, y float64) float64 { return dy * (1 - y*y) }
	case OpSigmoid:
		return func(dy, x, y float64) float64 { return dy * y * (1 - y) }
	case OpRelu:
		return func(dy, x, y float64) float64 {
			if y <= 0 {
				return 0
			}
			return dy
		}
	case OpGelu: // (x·Φ(x))' = Φ(x) + x·φ(x)
		return func(dy, x, y float64) float64 { return dy * activation.GeluSlope(x) }
	case OpGeluTanh:
		return func(dy, x, y float64) float64 { return dy * activation.GeluTanhSlope(x) }
	case OpSilu: // (x·s)' = s + x·s·(1-s)
		return func(dy, x, y float64) float64 {
			s := activation.Sigmoid(x)
			return dy * s * (1 + x*(1-s))
		}
	case OpSquare:
		return func(dy, x, y float64) float64 { return dy * 2 * x }
	default:
		return func(dy, x, y float64) float64 { return 0 }
	}
}

// Clamp computes dst[i] = min(max(x[i], lo), hi) of floats.
func (c *CPU) Clamp(dt DType, dst, x unsafe.Pointer, lo, hi float64, n int) {
	if dt == Float32 {
		clamp(sliceOf[float32](dst, n), sliceOf[float32](x, n), lo, hi)
		return
	}
	clamp(sliceOf[float64](dst, n), sliceOf[float64](x, n), lo, hi)
}

func clamp[T float](dst, x []T, lo, hi float64) {
	for i, v := range x {
		switch f := float64(v); {
		case f < lo:
			v = T(lo)
		case f > hi:
			v = T(hi)
		}
		dst[i] = v
	}
}

// ClampInt computes dst[i] = min(max(x[i], lo), hi) of integers.
func (c *CPU) ClampInt(dt DType, dst, x unsafe.Pointer, lo, hi int64, n int) {
	switch dt {
	case Int8:
		clampInt(sliceOf[int8](dst, n), sliceOf[int8](x, n), lo, hi)
	case Int16:
		clampInt(sliceOf[int16](dst, n), sliceOf[int16](x, n), lo, hi)
	case Int32:
		clampInt(sliceOf[int32](dst, n), sliceOf[int32](x, n), lo, hi)
	case Int64:
		clampInt(sliceOf[int64](dst, n), sliceOf[int64](x, n), lo, hi)
	case Uint8:
		clampInt(sliceOf[uint8](dst, n), sliceOf[uint8](x, n), lo, hi)
	}
}

func clampInt[T number](dst, x []T, lo, hi int64) {
	least, most := T(lo), T(hi)
	for i, v := range x {
		dst[i] = min(max(v, least), most)
	}
}

// ClampGrad computes dx[i] = dy[i] where lo <= x[i] <= hi, else 0.
func (c *CPU) ClampGrad(dt DType, dx, dy, x unsafe.Pointer, lo, hi float64, n int) {
	if dt == Float32 {
		clampGrad(sliceOf[float32](dx, n), sliceOf[float32](dy, n), sliceOf[float32](x, n), lo, hi)
		return
	}
	clampGrad(sliceOf[float64](dx, n), sliceOf[float64](dy, n), sliceOf[float64](x, n), lo, hi)
}

func clampGrad[T float](dx, dy, x []T, lo, hi float64) {
	for i, v := range x {
		if f := float64(v); f >= lo && f <= hi {
			dx[i] = dy[i]
		} else {
			dx[i] = 0
		}
	}
}
