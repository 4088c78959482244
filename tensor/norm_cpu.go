package tensor

import (
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/simd"
)

// optional returns n elements at p, nil for a nil p.
func optional[T any](p unsafe.Pointer, n int) []T {
	if p == nil {
		return nil
	}
	return sliceOf[T](p, n)
}

// LayerNorm normalises rows of n; stats gets (mean, rstd) of each. weight and bias may be nil.
func (c *CPU) LayerNorm(dt DType, dst, stats, x, weight, bias unsafe.Pointer, rows, n int, eps float64) bool {
	switch dt {
	case Float32:
		d, st, s := sliceOf[float32](dst, rows*n), sliceOf[float64](stats, rows*2), sliceOf[float32](x, rows*n)
		w, b := optional[float32](weight, n), optional[float32](bias, n)
		l := simd.Writing(d, s)
		parallel(rows, n*4, 1, func(lo, hi int) {
			for r := lo; r < hi; r++ {
				st[2*r], st[2*r+1] = l.LayerNormRow(d[r*n:(r+1)*n], s[r*n:(r+1)*n], w, b, eps)
			}
			l.Done()
		})
	case Float64:
		layerNorm(sliceOf[float64](dst, rows*n), sliceOf[float64](stats, rows*2), sliceOf[float64](x, rows*n),
			optional[float64](weight, n), optional[float64](bias, n), n, eps)
	default:
		return false
	}
	return true
}

// layerNorm is the definition.
func layerNorm(dst, stats, x, weight, bias []float64, n int, eps float64) {
	for r := range len(stats) / 2 {
		row := x[r*n : (r+1)*n]
		var mean, variance float64
		for _, v := range row {
			mean += v
		}
		mean /= float64(n)
		for _, v := range row {
			variance += (v - mean) * (v - mean)
		}
		rstd := 1 / math.Sqrt(variance/float64(n)+eps)
		for i, v := range row {
			h := (v - mean) * rstd
			if weight != nil {
				h *= weight[i]
			}
			if bias != nil {
				h += bias[i]
			}
			dst[r*n+i] = h
		}
		stats[2*r], stats[2*r+1] = mean, rstd
	}
}

// LayerNormGrad computes dx and adds to dweight and dbias, which may be nil.
func (c *CPU) LayerNormGrad(dt DType, dx, dweight, dbias, dy, x, weight, stats unsafe.Pointer, rows, n int) bool {
	switch dt {
	case Float32:
		d, dw, db := sliceOf[float32](dx, rows*n), optional[float32](dweight, n), optional[float32](dbias, n)
		g, s, w, st := sliceOf[float32](dy, rows*n), sliceOf[float32](x, rows*n), optional[float32](weight, n), sliceOf[float64](stats, rows*2)
		l := simd.Writing(d, g, s)
		defer l.Done()
		sumRows(rows, dw, db, func(r int, dw, db []float32) {
			l.LayerNormGradRow(d[r*n:(r+1)*n], dw, db, s[r*n:(r+1)*n], g[r*n:(r+1)*n], w, st[2*r], st[2*r+1])
		})
	case Float64:
		st := sliceOf[float64](stats, rows*2)
		normGrad(sliceOf[float64](dx, rows*n), optional[float64](dweight, n), optional[float64](dbias, n),
			sliceOf[float64](dy, rows*n), sliceOf[float64](x, rows*n), optional[float64](weight, n), n, true,
			func(r int) (mean, rstd float64) { return st[2*r], st[2*r+1] })
	default:
		return false
	}
	return true
}

// sumRows calls f for each row with the vectors into which it adds: those of its
// block of rows, which are then added to dw and db, so that the rounding error
// grows slowly with the number of rows.
func sumRows(rows int, dw, db []float32, f func(r int, dw, db []float32)) {
	block := sumBlock(rows)
	if rows <= block {
		for r := range rows {
			f(r, dw, db)
		}
		return
	}
	partW, partB := make([]float32, len(dw)), make([]float32, len(db))
	if dw == nil {
		partW = nil
	}
	if db == nil {
		partB = nil
	}
	for lo := 0; lo < rows; lo += block {
		clear(partW)
		clear(partB)
		for r := lo; r < min(lo+block, rows); r++ {
			f(r, partW, partB)
		}
		simd.AddTo(dw, partW)
		simd.AddTo(db, partB)
	}
}

// normGrad is the definition of the gradient of both norms; centre says whether
// the mean was taken out.
func normGrad[T float](dx, dweight, dbias, dy, x, weight []T, n int, centre bool, stat func(r int) (mean, rstd float64)) {
	if n == 0 {
		return
	}
	for r := range len(x) / n {
		mean, rstd := stat(r)
		var sumG, sumGH float64
		for i := range n {
			h, g := (float64(x[r*n+i])-mean)*rstd, float64(dy[r*n+i])
			if dweight != nil {
				dweight[i] += T(g * h)
			}
			if dbias != nil {
				dbias[i] += T(g)
			}
			if weight != nil {
				g *= float64(weight[i])
			}
			sumG += g
			sumGH += g * h
		}
		if !centre {
			sumG = 0
		}
		for i := range n {
			h, g := (float64(x[r*n+i])-mean)*rstd, float64(dy[r*n+i])
			if weight != nil {
				g *= float64(weight[i])
			}
			dx[r*n+i] = T(rstd * (g - sumG/float64(n) - h*sumGH/float64(n)))
		}
	}
}

// RMSNorm scales rows of n; stats gets rstd of each. weight may be nil.
func (c *CPU) RMSNorm(dt DType, dst, stats, x, weight unsafe.Pointer, rows, n int, eps float64) bool {
	switch dt {
	case Float32:
		d, st, s, w := sliceOf[float32](dst, rows*n), sliceOf[float64](stats, rows), sliceOf[float32](x, rows*n), optional[float32](weight, n)
		l := simd.Writing(d, s)
		parallel(rows, n*4, 1, func(lo, hi int) {
			for r := lo; r < hi; r++ {
				st[r] = l.RMSNormRow(d[r*n:(r+1)*n], s[r*n:(r+1)*n], w, eps)
			}
			l.Done()
		})
	case Float64:
		rmsNorm(sliceOf[float64](dst, rows*n), sliceOf[float64](stats, rows), sliceOf[float64](x, rows*n), optional[float64](weight, n), n, eps)
	default:
		return false
	}
	return true
}

// rmsNorm is the definition.
func rmsNorm(dst, stats, x, weight []float64, n int, eps float64) {
	for r := range stats {
		row := x[r*n : (r+1)*n]
		var sum float64
		for _, v := range row {
			sum += v * v
		}
		rstd := 1 / math.Sqrt(sum/float64(n)+eps)
		for i, v := range row {
			h := v * rstd
			if weight != nil {
				h *= weight[i]
			}
			dst[r*n+i] = h
		}
		stats[r] = rstd
	}
}

// RMSNormGrad computes dx and adds to dweight, which may be nil.
func (c *CPU) RMSNormGrad(dt DType, dx, dweight, dy, x, weight, stats unsafe.Pointer, rows, n int) bool {
	switch dt {
	case Float32:
		d, dw := sliceOf[float32](dx, rows*n), optional[float32](dweight, n)
		g, s, w, st := sliceOf[float32](dy, rows*n), sliceOf[float32](x, rows*n), optional[float32](weight, n), sliceOf[float64](stats, rows)
		l := simd.Writing(d, g, s)
		defer l.Done()
		sumRows(rows, dw, nil, func(r int, dw, _ []float32) {
			l.RMSNormGradRow(d[r*n:(r+1)*n], dw, s[r*n:(r+1)*n], g[r*n:(r+1)*n], w, st[r])
		})
	case Float64:
		st := sliceOf[float64](stats, rows)
		normGrad(sliceOf[float64](dx, rows*n), optional[float64](dweight, n), nil,
			sliceOf[float64](dy, rows*n), sliceOf[float64](x, rows*n), optional[float64](weight, n), n, false,
			func(r int) (mean, rstd float64) { return 0, st[r] })
	default:
		return false
	}
	return true
}
