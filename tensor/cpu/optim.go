package cpu

import (
	"math"
	"math/bits"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/simd"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// SGD does one step of stochastic gradient descent; buf is nil without momentum.
func (c *own) SGD(dt dtype.DType, param, grad, buf unsafe.Pointer, n int, o kernel.SGD) {
	if dt == dtype.Float64 {
		sgd(sliceOf[float64](param, n), sliceOf[float64](grad, n), optional[float64](buf, n), o)
		return
	}
	p, g := sliceOf[float32](param, n), sliceOf[float32](grad, n)
	switch {
	case o.Momentum == 0 && o.WeightDecay == 0:
		parallel(n, 2, 64, func(lo, hi int) { simd.Axpy(p[lo:hi], float32(-o.LR), g[lo:hi]) })
	case o.Momentum == 0:
		sgd(p, g, nil, o)
	default:
		b := sliceOf[float32](buf, n)
		k := simd.SGD{LR: float32(o.LR), Momentum: float32(o.Momentum), Dampening: float32(o.Dampening), WeightDecay: float32(o.WeightDecay),
			Nesterov: o.Nesterov}
		parallel(n, 4, 64, func(lo, hi int) { simd.SGDMomentum(p[lo:hi], b[lo:hi], g[lo:hi], k) })
	}
}

// sgd is the definition.
func sgd[T float](param, grad, buf []T, o kernel.SGD) {
	for i := range param {
		g := float64(grad[i]) + o.WeightDecay*float64(param[i])
		step := g
		if o.Momentum != 0 {
			b := o.Momentum*float64(buf[i]) + (1-o.Dampening)*g
			buf[i] = T(b)
			if step = b; o.Nesterov {
				step = g + o.Momentum*b
			}
		}
		param[i] = T(float64(param[i]) - o.LR*step)
	}
}

// Adam does one step of Adam or AdamW.
func (c *own) Adam(a kernel.Adam) {
	n, k := a.Numel(), adamOf(a.Step)
	switch {
	case a.Index != nil:
		c.adamRows(&a)
	case a.DType == dtype.Float64:
		adam(sliceOf[float64](a.Param, n), sliceOf[float64](a.M, n), sliceOf[float64](a.V, n), sliceOf[float64](a.Grad, n), a.Step)
	default:
		p, g, m, v := sliceOf[float32](a.Param, n), sliceOf[float32](a.Grad, n), sliceOf[float32](a.M, n), sliceOf[float32](a.V, n)
		parallel(n, 8, 64, func(lo, hi int) { simd.AdamStep(p[lo:hi], m[lo:hi], v[lo:hi], g[lo:hi], k) })
	}
}

// adamOf returns what the kernel of package simd takes.
func adamOf(s kernel.AdamStep) simd.Adam {
	return simd.Adam{
		Beta1: s.Beta1, Beta2: s.Beta2, StepSize: float32(s.StepSize),
		RootBias2: float32(s.RootBias2), Eps: float32(s.Eps), Decay: float32(s.Decay), L2: float32(s.L2),
	}
}

// adam is the definition.
func adam[T float](param, m, v, grad []T, s kernel.AdamStep) {
	for i := range param {
		g := float64(grad[i]) + s.L2*float64(param[i])
		m1 := s.Beta1*float64(m[i]) + (1-s.Beta1)*g
		v1 := s.Beta2*float64(v[i]) + (1-s.Beta2)*g*g
		m[i], v[i] = T(m1), T(v1)
		param[i] = T(s.Decay*float64(param[i]) - s.StepSize*m1/(math.Sqrt(v1)/s.RootBias2+s.Eps))
	}
}

// adamRows is Adam on the rows that Index names.
func (c *own) adamRows(a *kernel.Adam) {
	dim, k, mode := a.Cols, adamOf(a.Step), simd.Apart()
	index, rowBytes := sliceOf[int64](a.Index, a.Rows), a.Cols*a.DType.Size()
	for i, r := range index {
		prefetchRows(index, i, rowBytes, a.Param, a.M, a.V)
		from := int(r) * dim
		if a.DType == dtype.Float32 {
			mode.AdamRow(unsafe.Slice(at[float32](a.Param, from), dim), unsafe.Slice(at[float32](a.M, from), dim),
				unsafe.Slice(at[float32](a.V, from), dim), unsafe.Slice(at[float32](a.Grad, i*dim), dim), k)
		} else {
			adam(unsafe.Slice(at[float64](a.Param, from), dim), unsafe.Slice(at[float64](a.M, from), dim),
				unsafe.Slice(at[float64](a.V, from), dim), unsafe.Slice(at[float64](a.Grad, i*dim), dim), a.Step)
		}
	}
}

// AdagradRows does one step of row-wise Adagrad.
func (c *own) AdagradRows(a kernel.Adagrad) {
	if a.DType == dtype.Float32 {
		adagradRows(a, simd.SumSquares)
	} else {
		adagradRows(a, func(g []float64) float64 { return rowOp(kernel.OpPowSum, g, 2) })
	}
}

// adagradRows is AdagradRows with the sum of the squares of a row.
func adagradRows[T float](a kernel.Adagrad, squares func(g []T) float64) {
	mode := simd.Apart()
	dim, index := a.Cols, sliceOf[int64](a.Index, a.Rows)
	var mean []float64
	if a.Mean != nil {
		mean = sliceOf[float64](a.Mean, a.Rows)
	}
	for i, r := range index {
		prefetchRows(index, i, dim*a.DType.Size(), a.Table)
		prefetchRows(index, i, a.DType.Size(), a.State)
		g, state := unsafe.Slice(at[T](a.Grad, i*dim), dim), at[T](a.State, int(r))
		switch {
		case mean != nil:
			*state += T(mean[i])
		case dim > 0:
			*state += T(float64(T(squares(g))) / float64(dim)) // rounded as RowPowSums rounds it
		}
		if *state > 0 {
			simd.AxpyRow(mode, unsafe.Slice(at[T](a.Table, int(r)*dim), dim), T(-a.LR/(math.Sqrt(float64(*state))+a.Eps)), g)
		}
	}
}

// SumSquares computes dst = Σx².
func (c *own) SumSquares(dst unsafe.Pointer, dt dtype.DType, x unsafe.Pointer, n int) {
	if dt == dtype.Float32 {
		*(*float64)(dst) = simd.SumSquares(sliceOf[float32](x, n))
	} else {
		*(*float64)(dst) = rowOp(kernel.OpPowSum, sliceOf[float64](x, n), 2)
	}
}

// ColumnSquares computes dst[c] = Σx² over column c.
func (c *own) ColumnSquares(dst unsafe.Pointer, dt dtype.DType, x unsafe.Pointer, m kernel.Matrix) {
	sums := sliceOf[float64](dst, m.Cols)
	if dt == dtype.Float32 {
		columnSquares(sums, sliceOf[float32](x, m.Rows*m.Cols), m)
	} else {
		columnSquares(sums, sliceOf[float64](x, m.Rows*m.Cols), m)
	}
}

// columnSquares is ColumnSquares of a type. 16 rows at a time, then 8, 4, 2 and 1 of what is left, are squared and added in
// halves; their sums follow in float64. So the sum of a column depends on its elements alone.
func columnSquares[T float](dst []float64, x []T, m kernel.Matrix) {
	const tile = 512 // columns whose squares stay in the first cache
	clear(dst)
	room := make([]T, 16*min(m.Cols, tile))
	for lo := 0; lo < m.Cols; lo += tile {
		n := min(tile, m.Cols-lo)
		for r := 0; r < m.Rows; {
			rows := min(16, 1<<(bits.Len(uint(m.Rows-r))-1))
			squares := room[:rows*n]
			if n == m.Cols {
				x := x[r*n:][:rows*n]
				simd.Mul(squares, x, x)
			} else {
				for i := range rows {
					x := x[(r+i)*m.Cols+lo:][:n]
					simd.Mul(squares[i*n:][:n], x, x)
				}
			}
			for half := rows / 2 * n; half >= n; half /= 2 {
				simd.AddTo(squares[:half], squares[half:][:half])
			}
			for i, v := range squares[:n] {
				dst[lo+i] += float64(v)
			}
			r += rows
		}
	}
}
