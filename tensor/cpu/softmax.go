package cpu

import (
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/simd"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Softmax computes the softmax of each row, or its logarithm.
func (c *own) Softmax(dt dtype.DType, log bool, dst, x unsafe.Pointer, m kernel.Matrix) {
	n := m.Numel()
	if dt == dtype.Float64 {
		eachRow(sliceOf[float64](dst, n), sliceOf[float64](x, n), m.Cols, func(_ simd.Mode, d, s []float64) { softmaxRow(log, d, s) },
			simd.Ordinary())
		return
	}
	d, s := sliceOf[float32](dst, n), sliceOf[float32](x, n)
	row := simd.Mode.SoftmaxRow
	if log {
		row = simd.Mode.LogSoftmaxRow
	}
	eachRow(d, s, m.Cols, row, simd.Writing(d, s))
}

// SoftmaxGrad computes the gradient from dy and the result y; dx may be dy.
func (c *own) SoftmaxGrad(dt dtype.DType, log bool, dx, dy, y unsafe.Pointer, m kernel.Matrix) {
	n := m.Numel()
	if dt == dtype.Float64 {
		eachRow2(sliceOf[float64](dx, n), sliceOf[float64](y, n), sliceOf[float64](dy, n), m.Cols,
			func(_ simd.Mode, d, y, dy []float64) { softmaxGradRow(log, d, y, dy) }, simd.Ordinary())
		return
	}
	d, a, b := sliceOf[float32](dx, n), sliceOf[float32](y, n), sliceOf[float32](dy, n)
	row := simd.Mode.SoftmaxGradRow
	if log {
		row = simd.Mode.LogSoftmaxGradRow
	}
	eachRow2(d, a, b, m.Cols, row, simd.Writing(d, a, b))
}

// eachRow calls f with mode for each row of n elements.
func eachRow[T any](dst, x []T, n int, f func(mode simd.Mode, dst, x []T), mode simd.Mode) {
	if len(x) == 0 {
		return
	}
	parallel(len(x)/n, n*4, 1, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			f(mode, dst[i*n:(i+1)*n], x[i*n:(i+1)*n])
		}
		mode.Done()
	})
}

// eachRow2 is eachRow for two sources.
func eachRow2[T any](dst, x, y []T, n int, f func(mode simd.Mode, dst, x, y []T), mode simd.Mode) {
	if len(x) == 0 {
		return
	}
	parallel(len(x)/n, n*4, 1, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			f(mode, dst[i*n:(i+1)*n], x[i*n:(i+1)*n], y[i*n:(i+1)*n])
		}
		mode.Done()
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

// rowStats returns top, the largest element of x, and Σexp(x - top); -Inf and 0 if x is
// empty.
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
