package tensor

import (
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/simd"
)

// SGD does one step of stochastic gradient descent; buf is nil without momentum.
func (c *CPU) SGD(dt DType, param, grad, buf unsafe.Pointer, n int, o SGD) {
	if dt == Float64 {
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
		k := simd.SGD{LR: float32(o.LR), Momentum: float32(o.Momentum), Dampening: float32(o.Dampening), WeightDecay: float32(o.WeightDecay), Nesterov: o.Nesterov}
		parallel(n, 4, 64, func(lo, hi int) { simd.SGDMomentum(p[lo:hi], b[lo:hi], g[lo:hi], k) })
	}
}

// sgd is the definition.
func sgd[T float](param, grad, buf []T, o SGD) {
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
func (c *CPU) Adam(dt DType, param, grad, m, v unsafe.Pointer, n int, s AdamStep) {
	if dt == Float64 {
		adam(sliceOf[float64](param, n), sliceOf[float64](m, n), sliceOf[float64](v, n), sliceOf[float64](grad, n), s)
		return
	}
	p, g, m1, v1, k := sliceOf[float32](param, n), sliceOf[float32](grad, n), sliceOf[float32](m, n), sliceOf[float32](v, n), s.simd()
	parallel(n, 8, 64, func(lo, hi int) { simd.AdamStep(p[lo:hi], m1[lo:hi], v1[lo:hi], g[lo:hi], k) })
}

func (s AdamStep) simd() simd.Adam {
	return simd.Adam{
		Beta1: s.Beta1, Beta2: s.Beta2, StepSize: float32(s.StepSize),
		RootBias2: float32(s.RootBias2), Eps: float32(s.Eps), Decay: float32(s.Decay), L2: float32(s.L2),
	}
}

// adam is the definition.
func adam[T float](param, m, v, grad []T, s AdamStep) {
	for i := range param {
		g := float64(grad[i]) + s.L2*float64(param[i])
		m1 := s.Beta1*float64(m[i]) + (1-s.Beta1)*g
		v1 := s.Beta2*float64(v[i]) + (1-s.Beta2)*g*g
		m[i], v[i] = T(m1), T(v1)
		param[i] = T(s.Decay*float64(param[i]) - s.StepSize*m1/(math.Sqrt(v1)/s.RootBias2+s.Eps))
	}
}

// AdamRows does a step of Adam on the rows index of param, m and v.
func (c *CPU) AdamRows(dt DType, param, grad, index, m, v unsafe.Pointer, n, dim int, s AdamStep) {
	k := s.simd()
	for i, r := range sliceOf[int64](index, n) {
		from := int(r) * dim
		if dt == Float32 {
			simd.AdamStep(unsafe.Slice(at[float32](param, from), dim), unsafe.Slice(at[float32](m, from), dim),
				unsafe.Slice(at[float32](v, from), dim), unsafe.Slice(at[float32](grad, i*dim), dim), k)
		} else {
			adam(unsafe.Slice(at[float64](param, from), dim), unsafe.Slice(at[float64](m, from), dim),
				unsafe.Slice(at[float64](v, from), dim), unsafe.Slice(at[float64](grad, i*dim), dim), s)
		}
	}
}

// AdagradRows does a step of row-wise Adagrad on the rows index of table; state
// has a number a row.
func (c *CPU) AdagradRows(dt DType, table, grad, index, state unsafe.Pointer, n, dim int, lr, eps float64) {
	for i, r := range sliceOf[int64](index, n) {
		from := int(r) * dim
		if dt == Float32 {
			g, s := unsafe.Slice(at[float32](grad, i*dim), dim), at[float32](state, int(r))
			if dim > 0 {
				*s += float32(simd.SumSquares(g) / float64(dim))
			}
			if *s > 0 {
				simd.Axpy(unsafe.Slice(at[float32](table, from), dim), float32(-lr/(math.Sqrt(float64(*s))+eps)), g)
			}
		} else {
			adagradRow(unsafe.Slice(at[float64](table, from), dim), unsafe.Slice(at[float64](grad, i*dim), dim), at[float64](state, int(r)), lr, eps)
		}
	}
}

// adagradRow is the definition.
func adagradRow[T float](row, grad []T, state *T, lr, eps float64) {
	var sum float64
	for _, g := range grad {
		sum += float64(g) * float64(g)
	}
	if len(grad) > 0 {
		*state += T(sum / float64(len(grad)))
	}
	if *state > 0 {
		for i, g := range grad {
			row[i] -= T(lr * float64(g) / (math.Sqrt(float64(*state)) + eps))
		}
	}
}

// SumSquares computes dst = Σx².
func (c *CPU) SumSquares(dst unsafe.Pointer, dt DType, x unsafe.Pointer, n int) {
	if dt == Float32 {
		*(*float64)(dst) = simd.SumSquares(sliceOf[float32](x, n))
	} else {
		*(*float64)(dst) = rowOp(OpPowSum, sliceOf[float64](x, n), 2)
	}
}
