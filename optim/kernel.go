package optim

import (
	"math"

	"github.com/gorun-spmd/gorun/internal/simd"
	"github.com/gorun-spmd/gorun/tensor"
)

// widely calls f with a parameter and its gradient, bfloat16 as float32, and rounds what
// f makes of the parameter.
func widely(param *tensor.Tensor, g tensor.Rows, f func(param *tensor.Tensor, g tensor.Rows)) {
	wide := tensor.Widen(param)
	f(wide, tensor.Rows{Index: g.Index, Values: tensor.Widen(g.Values)})
	if wide != param {
		tensor.CastTo(param, wide)
		wide.Free()
	}
}

// sgdEveryRow is tensor.SGD.Step with the gradient that is zero outside the
// rows of g. moment is nil without momentum.
func sgdEveryRow[T float](param, moment *tensor.Tensor, o tensor.SGD, g tensor.Rows) {
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

func decayRow[T float](param, grad []T, o tensor.SGD) {
	for i, g := range grad {
		param[i] = T(float64(param[i]) - o.LR*(float64(g)+o.WeightDecay*float64(param[i])))
	}
}

func momentumRow[T float](param, moment, grad []T, o tensor.SGD) {
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
func adamEveryRow[T float](param, m, v *tensor.Tensor, o tensor.Adam, step int, g tensor.Rows) {
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

func adamRow[T float](param, m, v, grad []T, o tensor.Adam, size, root float64) {
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
