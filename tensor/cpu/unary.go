package cpu

import (
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/simd"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Unary computes dst[i] = op(x[i]); dst may be x.
func (c *own) Unary(op kernel.UnaryOp, dt dtype.DType, dst, x unsafe.Pointer, n int) {
	switch dt {
	case dtype.Float32:
		unary(op, sliceOf[float32](dst, n), sliceOf[float32](x, n))
	case dtype.Float64:
		unary(op, sliceOf[float64](dst, n), sliceOf[float64](x, n))
	default:
		types[dt].unaryInt(op, dst, x, n)
	}
}

// unary is Unary of floats.
func unary[T float](op kernel.UnaryOp, dst, x []T) {
	f := valueOf[T](op)
	if n := len(dst); n*8 < ParallelFrom {
		f(dst, x)
	} else {
		parallel(n, 8, 64, func(lo, hi int) { f(dst[lo:hi], x[lo:hi]) })
	}
}

// valueOf returns what computes op of floats: its fast form if it has one, else its definition.
func valueOf[T float](op kernel.UnaryOp) func(dst, x []T) {
	if f, ok := any(op.Row().Value32).(func(dst, x []T)); ok && f != nil {
		return f
	}
	if f, ok := any(op.Row().Value64).(func(dst, x []T)); ok && f != nil {
		return f
	}
	return func(dst, x []T) { unaryFloat(op, dst, x) }
}

// unaryFloat computes in float64, one element at a time.
func unaryFloat[T float](op kernel.UnaryOp, dst, x []T) {
	dst = dst[:len(x)]
	switch op { // fast forms
	case kernel.OpNeg:
		for i, v := range x {
			dst[i] = -v
		}
	case kernel.OpAbs:
		for i, v := range x {
			dst[i] = T(math.Abs(float64(v)))
		}
	case kernel.OpSquare:
		for i, v := range x {
			dst[i] = v * v
		}
	default: // the definition
		f := op.Row().Value
		for i, v := range x {
			dst[i] = T(f(float64(v)))
		}
	}
}

// unaryInt is Unary for the operators that integers have.
func unaryInt[T number](op kernel.UnaryOp, dst, x []T) {
	f := op.Row().Integer
	if f == nil {
		kernel.Missing("the CPU for integers", op)
	}
	switch op { // fast forms
	case kernel.OpNeg:
		for i, v := range x {
			dst[i] = -v
		}
	case kernel.OpSquare:
		for i, v := range x {
			dst[i] = v * v
		}
	case kernel.OpAbs:
		for i, v := range x {
			sign := int64(v) >> 63
			dst[i] = T((int64(v) ^ sign) - sign)
		}
	default: // the definition
		for i, v := range x {
			dst[i] = T(f(int64(v)))
		}
	}
}

// UnaryGrad computes dx[i] = dy[i]·op'(x[i]), y[i] = op(x[i]); dx may be dy.
func (c *own) UnaryGrad(op kernel.UnaryOp, dt dtype.DType, dx unsafe.Pointer, s kernel.Slope, n int) {
	if dt == dtype.Float32 {
		unaryGrad(op, sliceOf[float32](dx, n), sliceOf[float32](s.DY, n), sliceOf[float32](s.X, n), sliceOf[float32](s.Y, n))
		return
	}
	unaryGrad(op, sliceOf[float64](dx, n), sliceOf[float64](s.DY, n), sliceOf[float64](s.X, n), sliceOf[float64](s.Y, n))
}

// unaryGrad is UnaryGrad of floats.
func unaryGrad[T float](op kernel.UnaryOp, dx, dy, x, y []T) {
	f := gradOf[T](op)
	if n := len(dx); n*8 < ParallelFrom {
		f(dx, dy, x, y)
	} else {
		parallel(n, 8, 64, func(lo, hi int) { f(dx[lo:hi], dy[lo:hi], x[lo:hi], y[lo:hi]) })
	}
}

// gradOf is valueOf of a gradient.
func gradOf[T float](op kernel.UnaryOp) func(dx, dy, x, y []T) {
	if f, ok := any(op.Row().Grad32).(func(dx, dy, x, y []T)); ok && f != nil {
		return f
	}
	if f, ok := any(op.Row().Grad64).(func(dx, dy, x, y []T)); ok && f != nil {
		return f
	}
	return func(dx, dy, x, y []T) { unaryGradFloat(op, dx, dy, x, y) }
}

// unaryGradFloat computes in float64, one element at a time: the definition.
func unaryGradFloat[T float](op kernel.UnaryOp, dx, dy, x, y []T) {
	f := op.Row().Grad
	for i, g := range dy {
		dx[i] = T(f(float64(g), float64(x[i]), float64(y[i])))
	}
}

// Clamp computes dst[i] = min(max(x[i], lo), hi) of floats.
func (c *own) Clamp(dt dtype.DType, dst, x unsafe.Pointer, lo, hi float64, n int) {
	if dt == dtype.Float32 {
		d, s := sliceOf[float32](dst, n), sliceOf[float32](x, n)
		parallel(n, 8, 64, func(from, to int) { simd.Clamp(d[from:to], s[from:to], float32(lo), float32(hi)) })
		return
	}
	d, s := sliceOf[float64](dst, n), sliceOf[float64](x, n)
	parallel(n, 8, 64, func(from, to int) { simd.ClampDouble(d[from:to], s[from:to], lo, hi) })
}

// ClampInt computes dst[i] = min(max(x[i], lo), hi) of integers.
func (c *own) ClampInt(dt dtype.DType, dst, x unsafe.Pointer, lo, hi int64, n int) {
	types[dt].clampInt(dst, x, lo, hi, n)
}

// ClampGrad computes dx[i] = dy[i] where lo <= x[i] <= hi, else 0.
func (c *own) ClampGrad(dt dtype.DType, dx unsafe.Pointer, s kernel.Slope, lo, hi float64, n int) {
	if dt == dtype.Float32 {
		d, g, a := sliceOf[float32](dx, n), sliceOf[float32](s.DY, n), sliceOf[float32](s.X, n)
		least, most := float32(lo), float32(hi) // what lies between them lies between lo and hi
		if float64(least) < lo {
			least = math.Nextafter32(least, float32(math.Inf(1)))
		}
		if float64(most) > hi {
			most = math.Nextafter32(most, float32(math.Inf(-1)))
		}
		parallel(n, 8, 64, func(from, to int) { simd.ClampGrad(d[from:to], a[from:to], g[from:to], least, most) })
		return
	}
	d, g, a := sliceOf[float64](dx, n), sliceOf[float64](s.DY, n), sliceOf[float64](s.X, n)
	parallel(n, 8, 64, func(from, to int) { simd.ClampGradDouble(d[from:to], a[from:to], g[from:to], lo, hi) })
}

// Leaky computes dst[i] = dy[i] where x[i] > 0, else dy[i]·slope.
func (c *own) Leaky(dt dtype.DType, dst unsafe.Pointer, s kernel.Slope, slope float64, n int) {
	if dt == dtype.Float32 {
		d, g, a := sliceOf[float32](dst, n), sliceOf[float32](s.DY, n), sliceOf[float32](s.X, n)
		parallel(n, 8, 64, func(lo, hi int) { simd.Leaky(d[lo:hi], a[lo:hi], g[lo:hi], float32(slope)) })
		return
	}
	d, g := sliceOf[float64](dst, n), sliceOf[float64](s.DY, n)
	for i, v := range sliceOf[float64](s.X, n) {
		if d[i] = g[i]; !(v > 0) {
			d[i] *= slope
		}
	}
}
