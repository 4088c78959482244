package optim

import (
	"math"
	"runtime"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/simd"
	"github.com/gorun-spmd/gorun/tensor"
)

// gradient returns this rank's part of the gradient: all of it, or the values of its rows.
func (c *change) gradient() **tensor.Tensor {
	if c.dense != nil {
		return &c.dense
	}
	return &c.rows.Values
}

// replace makes g the gradient until the step is done, and frees it then.
func (c *change) replace(g *tensor.Tensor) {
	if at := c.gradient(); *at != g {
		*at = g
		c.after(g.Free)
	}
}

// after arranges a call of f when the step is done, before the calls arranged earlier.
func (c *change) after(f func()) {
	next := c.done
	c.done = func() {
		f()
		next()
	}
}

// multiply makes the step use the gradient times v.
func (c *change) multiply(v float64) { c.replace(tensor.MulScalar(*c.gradient(), v)) }

// widen makes the step of a parameter of a narrow type change master, its float32 weights,
// with the gradient in float32. When the step is done it rounds master to the parameter:
// only the rows of a sparse gradient, unless everyRow changes.
func (c *change) widen(master *tensor.Tensor, everyRow bool) {
	half := c.local
	c.local = master
	c.replace(tensor.Widen(*c.gradient()))
	if c.dense != nil || everyRow {
		tensor.Refresh(master, half)
		c.after(func() { tensor.CastTo(half, master) })
		return
	}
	index := c.rows.Index
	wide, old := tensor.TakeRows(master, index, 0), tensor.TakeRows(half, index, 0)
	tensor.Refresh(wide, old)
	tensor.PutRows(master, tensor.Rows{Index: index, Values: wide})
	c.after(func() {
		tensor.TakeRowsTo(wide, master, index, 0, false)
		tensor.CastTo(old, wide)
		tensor.PutRows(half, tensor.Rows{Index: index, Values: old})
		wide.Free()
		old.Free()
	})
}

// prefetchAhead is how many rows ahead those are prefetched that a step changes.
const prefetchAhead = 8

// sgdEveryRow is tensor.SGD.Step with the gradient that is zero outside the
// rows of g. moment is nil without momentum.
func sgdEveryRow[T dtype.Float](param, moment *tensor.Tensor, o tensor.SGD, g tensor.Rows) {
	tensor.Edit(param, func(p []T) {
		if moment == nil {
			everyRow(param, g, func(lo, hi int, grad []T) { decayRow(p[lo:hi], grad, o) })
			return
		}
		tensor.Edit(moment, func(b []T) {
			everyRow(param, g, func(lo, hi int, grad []T) { momentumRow(p[lo:hi], b[lo:hi], grad, o) })
		})
	})
}

func decayRow[T dtype.Float](param, grad []T, o tensor.SGD) {
	for i, g := range grad {
		param[i] = T(float64(param[i]) - o.LR*(float64(g)+o.WeightDecay*float64(param[i])))
	}
}

func momentumRow[T dtype.Float](param, moment, grad []T, o tensor.SGD) {
	if p, ok := any(param).([]float32); ok {
		simd.SGDMomentum(p, any(moment).([]float32), any(grad).([]float32), simd.SGD{LR: float32(o.LR), Momentum: float32(o.Momentum),
			Dampening: float32(o.Dampening), WeightDecay: float32(o.WeightDecay), Nesterov: o.Nesterov})
		return
	}
	for i := range grad {
		g := float64(grad[i]) + o.WeightDecay*float64(param[i])
		b := o.Momentum*float64(moment[i]) + (1-o.Dampening)*g
		moment[i] = T(b)
		if o.Nesterov {
			g += o.Momentum * b
		} else {
			g = b
		}
		param[i] = T(float64(param[i]) - o.LR*g)
	}
}

// adamEveryRow is tensor.Adam.Step with the gradient that is zero outside the
// rows of g.
func adamEveryRow[T dtype.Float](param, m, v *tensor.Tensor, o tensor.Adam, step int, g tensor.Rows) {
	size := o.LR / (1 - math.Pow(o.Beta1, float64(step)))
	root := math.Sqrt(1 - math.Pow(o.Beta2, float64(step)))
	tensor.Edit(param, func(p []T) {
		tensor.Edit(m, func(first []T) {
			tensor.Edit(v, func(second []T) {
				everyRow(param, g, func(lo, hi int, grad []T) {
					adamRow(p[lo:hi], first[lo:hi], second[lo:hi], grad, o, size, root)
				})
			})
		})
	})
}

func adamRow[T dtype.Float](param, m, v, grad []T, o tensor.Adam, size, root float64) {
	decay, l2 := 1-o.LR*o.WeightDecay, 0.0
	if o.Coupled {
		decay, l2 = 1, o.WeightDecay
	}
	if p, ok := any(param).([]float32); ok {
		simd.AdamStep(p, any(m).([]float32), any(v).([]float32), any(grad).([]float32), simd.Adam{Beta1: o.Beta1, Beta2: o.Beta2,
			StepSize: float32(size), RootBias2: float32(root), Eps: float32(o.Eps), Decay: float32(decay), L2: float32(l2)})
		return
	}
	for i := range grad {
		g := float64(grad[i]) + l2*float64(param[i])
		first := o.Beta1*float64(m[i]) + (1-o.Beta1)*g
		second := o.Beta2*float64(v[i]) + (1-o.Beta2)*g*g
		m[i], v[i] = T(first), T(second)
		param[i] = T(decay*float64(param[i]) - size*first/(math.Sqrt(second)/root+o.Eps))
	}
}

// adagradRows is the step of Adagrad in the rows of g, which it reads once, with what belongs to them.
func adagradRows[T dtype.Float](param, sum *tensor.Tensor, g tensor.Rows, rate, eps float64) {
	width := param.Dim(1)
	index, grad := tensor.Read[int64](g.Index), tensor.Read[T](g.Values)
	tensor.Edit(param, func(p []T) {
		tensor.Edit(sum, func(s []T) {
			for i, row := range index {
				if next := i + prefetchAhead; next < len(index) {
					simd.PrefetchRow(p, int(index[next]), width)
					simd.PrefetchRow(s, int(index[next]), width)
				}
				lo, hi := int(row)*width, int(row+1)*width
				adagradRow(p[lo:hi], s[lo:hi], grad[i*width:(i+1)*width], T(-rate), T(eps))
			}
		})
	})
	runtime.KeepAlive(g)
}

func adagradRow[T dtype.Float](param, sum, grad []T, step, eps T) {
	if p, ok := any(param).([]float32); ok {
		simd.Apart().AdagradRow(p, any(sum).([]float32), any(grad).([]float32), simd.Adagrad{Step: float32(step), Eps: float32(eps)})
		return
	}
	for i, g := range grad {
		sum[i] += T(g * g) // rounded, as by the operators
		param[i] += step * (g / (T(math.Sqrt(float64(sum[i]))) + eps))
	}
}
