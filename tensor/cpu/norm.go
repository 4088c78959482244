package cpu

import (
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/simd"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// optional returns n elements at p, nil for a nil p.
func optional[T any](p unsafe.Pointer, n int) []T {
	if p == nil {
		return nil
	}
	return sliceOf[T](p, n)
}

// Norm normalises rows.
func (c *own) Norm(o kernel.Norm) {
	rows, n := o.Rows, o.Cols
	each := 1 // statistics of a row
	if o.Centre {
		each = 2
	}
	st := sliceOf[float64](o.Stats, rows*each)
	if o.DType == dtype.Float64 {
		d, s, w := sliceOf[float64](o.Y, rows*n), sliceOf[float64](o.X, rows*n), optional[float64](o.Weight, n)
		if o.Centre {
			layerNorm(d, st, s, w, optional[float64](o.Bias, n), n, o.Eps)
		} else {
			rmsNorm(d, st, s, w, n, o.Eps)
		}
		return
	}
	d, s := sliceOf[float32](o.Y, rows*n), sliceOf[float32](o.X, rows*n)
	w, b := optional[float32](o.Weight, n), optional[float32](o.Bias, n)
	mode := simd.Writing(d, s)
	parallel(rows, n*4, 1, func(lo, hi int) {
		for r := lo; r < hi; r++ {
			if d, s := d[r*n:(r+1)*n], s[r*n:(r+1)*n]; o.Centre {
				st[2*r], st[2*r+1] = mode.LayerNormRow(d, s, w, b, o.Eps)
			} else {
				st[r] = mode.RMSNormRow(d, s, w, o.Eps)
			}
		}
		mode.Done()
	})
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

// NormGrad computes DX and adds to DWeight and DBias.
func (c *own) NormGrad(o kernel.NormGrad) {
	rows, n := o.Rows, o.Cols
	if o.DType == dtype.Float64 {
		d, g, s, stats := sliceOf[float64](o.DX, rows*n), sliceOf[float64](o.DY, rows*n), sliceOf[float64](o.X, rows*n), statsOf(&o.Norm)
		w, dw, db := optional[float64](o.Weight, n), optional[float64](o.DWeight, n), optional[float64](o.DBias, n)
		part := func(lo, hi int, dw, db []float64) {
			normGrad(d[lo*n:hi*n], dw, db, g[lo*n:hi*n], s[lo*n:hi*n], w, n, o.Centre, func(r int) (mean, rstd float64) { return stats(lo + r) })
		}
		if c.pairwise {
			sumRowsPairwise(rows, dw, db, part)
		} else {
			part(0, rows, dw, db)
		}
		return
	}
	d, dw, db := sliceOf[float32](o.DX, rows*n), optional[float32](o.DWeight, n), optional[float32](o.DBias, n)
	g, s, w, stats := sliceOf[float32](o.DY, rows*n), sliceOf[float32](o.X, rows*n), optional[float32](o.Weight, n), statsOf(&o.Norm)
	mode := simd.Writing(d, g, s)
	defer mode.Done()
	sumRows(c.pairwise, rows, dw, db, func(r int, dw, db []float32) {
		mean, rstd := stats(r)
		if d, s, g := d[r*n:(r+1)*n], s[r*n:(r+1)*n], g[r*n:(r+1)*n]; o.Centre {
			mode.LayerNormGradRow(d, dw, db, s, g, w, mean, rstd)
		} else {
			mode.RMSNormGradRow(d, dw, s, g, w, rstd)
		}
	})
}

// statsOf returns a function that returns the statistics of a row; the mean of an RMSNorm
// is 0.
func statsOf(o *kernel.Norm) func(r int) (mean, rstd float64) {
	if o.Centre {
		st := sliceOf[float64](o.Stats, 2*o.Rows)
		return func(r int) (mean, rstd float64) { return st[2*r], st[2*r+1] }
	}
	st := sliceOf[float64](o.Stats, o.Rows)
	return func(r int) (mean, rstd float64) { return 0, st[r] }
}

// sumRows calls f for each row with the vectors to add to. They are sums of a block of
// rows, which sumRows then adds to dw and db: so the rounding error grows slowly with
// the number of rows. With pairs the sums are pairwise.
func sumRows(pairs bool, rows int, dw, db []float32, f func(r int, dw, db []float32)) {
	if pairs && (dw != nil || db != nil) {
		sumRowsPairwise(rows, dw, db, func(lo, hi int, dw, db []float32) {
			for r := lo; r < hi; r++ {
				f(r, dw, db)
			}
		})
		return
	}
	block := SumBlock(rows)
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
