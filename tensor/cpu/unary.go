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
		d, s := sliceOf[float32](dst, n), sliceOf[float32](x, n)
		if n*8 < ParallelFrom {
			unary32(op, d, s)
			return
		}
		parallel(n, 8, 64, func(lo, hi int) { unary32(op, d[lo:hi], s[lo:hi]) })
	case dtype.Float64:
		unaryFloat(op, sliceOf[float64](dst, n), sliceOf[float64](x, n))
	default:
		types[dt].unaryInt(op, dst, x, n)
	}
}

// unary32 is the float32 case of Unary.
func unary32(op kernel.UnaryOp, dst, x []float32) {
	if f := op.Row().Value32; f != nil {
		f(dst, x)
		return
	}
	unaryFloat(op, dst, x)
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
		d, g, a, b := sliceOf[float32](dx, n), sliceOf[float32](s.DY, n), sliceOf[float32](s.X, n), sliceOf[float32](s.Y, n)
		if n*8 < ParallelFrom {
			unaryGrad32(op, d, g, a, b)
			return
		}
		parallel(n, 8, 64, func(lo, hi int) { unaryGrad32(op, d[lo:hi], g[lo:hi], a[lo:hi], b[lo:hi]) })
		return
	}
	unaryGradFloat(op, sliceOf[float64](dx, n), sliceOf[float64](s.DY, n), sliceOf[float64](s.X, n), sliceOf[float64](s.Y, n))
}

// unaryGrad32 is the float32 case of UnaryGrad.
func unaryGrad32(op kernel.UnaryOp, dx, dy, x, y []float32) {
	if f := op.Row().Grad32; f != nil {
		f(dx, dy, x, y)
		return
	}
	unaryGradFloat(op, dx, dy, x, y)
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
	clampGrad(sliceOf[float64](dx, n), sliceOf[float64](s.DY, n), sliceOf[float64](s.X, n), lo, hi)
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
