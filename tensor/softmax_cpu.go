package tensor

import (
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/simd"
)

// Softmax computes the softmax, or its logarithm, of each of rows rows of n.
func (c *CPU) Softmax(dt DType, log bool, dst, x unsafe.Pointer, rows, n int) bool {
	switch dt {
	case Float32:
		d, s := sliceOf[float32](dst, rows*n), sliceOf[float32](x, rows*n)
		row := simd.Level.SoftmaxRow
		if log {
			row = simd.Level.LogSoftmaxRow
		}
		eachRow(d, s, n, row, simd.Writing(d, s))
	case Float64:
		eachRow(sliceOf[float64](dst, rows*n), sliceOf[float64](x, rows*n), n, func(_ simd.Level, d, s []float64) { softmaxRow(log, d, s) }, simd.Best())
	default:
		return false
	}
	return true
}

// SoftmaxGrad computes the gradient from dy and the result y; dx may be dy.
func (c *CPU) SoftmaxGrad(dt DType, log bool, dx, dy, y unsafe.Pointer, rows, n int) bool {
	switch dt {
	case Float32:
		d, a, b := sliceOf[float32](dx, rows*n), sliceOf[float32](y, rows*n), sliceOf[float32](dy, rows*n)
		row := simd.Level.SoftmaxGradRow
		if log {
			row = simd.Level.LogSoftmaxGradRow
		}
		eachRow2(d, a, b, n, row, simd.Writing(d, a, b))
	case Float64:
		eachRow2(sliceOf[float64](dx, rows*n), sliceOf[float64](y, rows*n), sliceOf[float64](dy, rows*n), n,
			func(_ simd.Level, d, y, dy []float64) { softmaxGradRow(log, d, y, dy) }, simd.Best())
	default:
		return false
	}
	return true
}

// eachRow calls f at level l for each row of n elements.
func eachRow[T any](dst, x []T, n int, f func(l simd.Level, dst, x []T), l simd.Level) {
	if len(x) == 0 {
		return
	}
	parallel(len(x)/n, n*4, 1, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			f(l, dst[i*n:(i+1)*n], x[i*n:(i+1)*n])
		}
		l.Done()
	})
}

// eachRow2 is eachRow for two sources.
func eachRow2[T any](dst, x, y []T, n int, f func(l simd.Level, dst, x, y []T), l simd.Level) {
	if len(x) == 0 {
		return
	}
	parallel(len(x)/n, n*4, 1, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			f(l, dst[i*n:(i+1)*n], x[i*n:(i+1)*n], y[i*n:(i+1)*n])
		}
		l.Done()
	})
}

func softmaxRow[T float](log bool, dst, x []T) {
	top, sum := rowStats(x)
	for i, v := range x {
		if log {
			dst[i] = T(float64(v) - top - math.Log(sum))
		} else {
			dst[i] = T(math.Exp(float64(v)-top) / sum)
		}
	}
}

// rowStats returns the largest element of x and Σexp(x - it); -Inf and 0 for none.
func rowStats[T float](x []T) (top, sum float64) {
	top = math.Inf(-1)
	for _, v := range x {
		top = max(top, float64(v))
	}
	for _, v := range x {
		if !math.IsInf(float64(v), -1) { // else -Inf - -Inf is NaN
			sum += math.Exp(float64(v) - top)
		}
	}
	return top, sum
}

func softmaxGradRow[T float](log bool, dx, y, dy []T) {
	var sum float64
	for i, g := range dy {
		if log {
			sum += float64(g)
		} else {
			sum += float64(g) * float64(y[i])
		}
	}
	for i, g := range dy {
		if log {
			dx[i] = T(float64(g) - math.Exp(float64(y[i]))*sum)
		} else {
			dx[i] = T(float64(y[i]) * (float64(g) - sum))
		}
	}
}
