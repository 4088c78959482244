package tensor

import (
	"math"
	"runtime"
	"unsafe"
)

// An SGD is the configuration of stochastic gradient descent, as torch.optim.SGD.
type SGD struct {
	LR          float64
	Momentum    float64
	Dampening   float64
	WeightDecay float64
	Nesterov    bool
}

// Step updates param in place:
//
//	g = grad + WeightDecay·param
//	buf = Momentum·buf + (1-Dampening)·g      (buf = g on the first step)
//	param -= LR·(buf, or g + Momentum·buf with Nesterov)
//
// buf has param's shape, and zeros on the first step; with Momentum 0 it is not
// used and may be nil. grad is not changed. Beside bfloat16, which is computed with in
// float32 and rounded once a step, buf is float32.
func (o SGD) Step(param, grad, buf *Tensor, first bool) {
	wantStep("SGD", param, grad)
	if o.Momentum != 0 {
		if buf == nil {
			throwShape("SGD", "%v: momentum %g needs a buffer", param.brief(), o.Momentum)
		}
		wantState("SGD", param, buf)
	}
	if first {
		o.Dampening = 0
	}
	if inPieces(param) {
		if o.Momentum == 0 {
			editElements(param, func(param *Tensor, args []*Tensor) { o.Step(param, args[0], nil, first) }, grad)
		} else {
			editElements(param, func(param *Tensor, args []*Tensor) { o.Step(param, args[0], args[1], first) }, grad, buf)
		}
		return
	}
	param.dev.SGD(param.dtype, param.ptr("SGD"), grad.ptr("SGD"), addrOf("SGD", buf), param.numel, o)
	runtime.KeepAlive(grad)
	runtime.KeepAlive(buf)
}

// StepRows updates the rows of table that the gradient names; with WeightDecay 0
// that is the same as Step with the dense gradient. It throws a *ShapeError for
// Momentum or WeightDecay, which touch every row.
func (o SGD) StepRows(table *Tensor, grad Rows) {
	if o.Momentum != 0 || o.WeightDecay != 0 {
		throwShape("SGD", "%v: momentum %g and weight decay %g touch every row; make the gradient dense", table.brief(), o.Momentum, o.WeightDecay)
	}
	AddRowsTo(table, grad, -o.LR)
}

// An Adam is the configuration of Adam and AdamW, as torch.optim has them.
type Adam struct {
	LR           float64
	Beta1, Beta2 float64
	Eps          float64
	WeightDecay  float64
	Coupled      bool // Adam: the decay is part of the gradient; false is AdamW
}

// DefaultAdamW returns torch.optim.AdamW's defaults.
func DefaultAdamW() Adam {
	return Adam{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 1e-2}
}

// An AdamStep are the constants of one step, worked out in float64.
type AdamStep struct {
	Beta1, Beta2 float64
	StepSize     float64 // LR/(1 - Beta1ᵗ)
	RootBias2    float64 // √(1 - Beta2ᵗ)
	Eps          float64
	Decay        float64 // what the parameter is multiplied by first
	L2           float64 // the share of the parameter that is added to the gradient
}

func (o Adam) constants(step int) AdamStep {
	s := AdamStep{
		Beta1: o.Beta1, Beta2: o.Beta2, Eps: o.Eps, Decay: 1,
		StepSize:  o.LR / (1 - math.Pow(o.Beta1, float64(step))),
		RootBias2: math.Sqrt(1 - math.Pow(o.Beta2, float64(step))),
	}
	if o.Coupled {
		s.L2 = o.WeightDecay
	} else {
		s.Decay = 1 - o.LR*o.WeightDecay
	}
	return s
}

// Step updates param and the moments m and v in place, in step number step, from 1
// on:
//
//	m = β1·m + (1-β1)·g    v = β2·v + (1-β2)·g²
//	param = (1-LR·decay)·param - LR/(1-β1ᵗ) · m / (√v/√(1-β2ᵗ) + Eps)
//
// m and v have param's shape and start as zeros. Beside bfloat16, which is computed with
// in float32 and rounded once a step, they are float32.
func (o Adam) Step(param, grad, m, v *Tensor, step int) {
	wantStep("Adam", param, grad)
	wantState("Adam", param, m)
	wantState("Adam", param, v)
	wantStepNumber("Adam", step)
	if inPieces(param) {
		editElements(param, func(param *Tensor, args []*Tensor) { o.Step(param, args[0], args[1], args[2], step) }, grad, m, v)
		return
	}
	param.dev.Adam(param.dtype, param.ptr("Adam"), grad.ptr("Adam"), m.ptr("Adam"), v.ptr("Adam"), param.numel, o.constants(step))
	runtime.KeepAlive(grad)
}

// StepRows is the lazy form, as torch.optim.SparseAdam: only the rows of table, m
// and v that the gradient names change, and no weight decay is applied. Beside a
// table of bfloat16, which is rounded once a step, m and v are float32.
func (o Adam) StepRows(table *Tensor, grad Rows, m, v *Tensor, step int) {
	wantRows("Adam", table, grad)
	wantState("Adam", table, m)
	wantState("Adam", table, v)
	wantStepNumber("Adam", step)
	o.WeightDecay = 0
	if inPieces(table) {
		editRows("Adam", grad.Index, grad.Values, []*Tensor{table, m, v}, func(values *Tensor, own []*Tensor) {
			o.Step(own[0], values, own[1], own[2], step)
		})
		return
	}
	table.dev.AdamRows(table.dtype, table.ptr("Adam"), grad.Values.ptr("Adam"), grad.Index.ptr("Adam"), m.ptr("Adam"), v.ptr("Adam"),
		grad.Index.numel, table.dims[1], o.constants(step))
	runtime.KeepAlive(grad.Index)
	runtime.KeepAlive(grad.Values)
}

// An Adagrad is the configuration of row-wise Adagrad: one accumulator a row.
type Adagrad struct {
	LR  float64
	Eps float64
}

// StepRows updates the rows of table [R, D] that the gradient names, and their
// accumulators state [R], zeros at the start and float32 beside bfloat16:
//
//	state[r] += mean of g²      table[r] -= LR·g/(√state[r] + Eps)
func (o Adagrad) StepRows(table *Tensor, grad Rows, state *Tensor) {
	wantRows("Adagrad", table, grad)
	wantFloatOrHalf("Adagrad", table)
	wantWideType("Adagrad", table, state)
	if state.numel != table.dims[0] {
		throwShape("Adagrad", "state %v for table %v: want one number a row", state.brief(), table.brief())
	}
	if inPieces(table) {
		sums := state.Reshape(state.numel, 1)
		editRows("Adagrad", grad.Index, grad.Values, []*Tensor{table, sums}, func(values *Tensor, own []*Tensor) {
			o.Step(own[0], values, own[1])
		})
		return
	}
	table.dev.AdagradRows(table.dtype, table.ptr("Adagrad"), grad.Values.ptr("Adagrad"), grad.Index.ptr("Adagrad"), state.ptr("Adagrad"),
		grad.Index.numel, table.dims[1], o.LR, o.Eps)
	runtime.KeepAlive(grad.Index)
	runtime.KeepAlive(grad.Values)
}

// Step is StepRows for a dense gradient; a row of zeros changes nothing.
func (o Adagrad) Step(table, grad, state *Tensor) {
	if table.ndim != 2 {
		throwShape("Adagrad", "table %v: want two dimensions", table.brief())
	}
	o.StepRows(table, Rows{Index: Arange(table.dev, Int64, 0, table.dims[0]), Values: grad}, state)
}

// SumSquares returns Σx² over all elements of each tensor, in float64 on the host:
// what norm clipping adds up. All are on one device, which is waited for once.
func SumSquares(xs ...*Tensor) []float64 {
	if len(xs) == 0 {
		return nil
	}
	sums := New(xs[0].dev, Float64, len(xs))
	defer sums.Free()
	for i, x := range xs {
		wantFloatOrHalf("SumSquares", x)
		wantSameDevice("SumSquares", xs[0], x)
		if inPieces(x) {
			x = Widen(x)
		}
		x.dev.SumSquares(unsafe.Add(sums.addr, i*Float64.Size()), x.dtype, x.ptr("SumSquares"), x.numel)
		runtime.KeepAlive(x)
	}
	return ToSlice[float64](sums)
}

// wantState throws unless a parameter and what an optimizer remembers of it fit.
func wantState(op string, param, state *Tensor) {
	wantFloatOrHalf(op, param)
	wantWideType(op, param, state)
	wantSameShape(op, param, state)
}

// wantStep throws unless a parameter and its gradient fit.
func wantStep(op string, param, other *Tensor) {
	wantFloatOrHalf(op, param)
	wantSameType(op, param, other)
	wantSameShape(op, param, other)
}

func wantStepNumber(op string, step int) {
	if step < 1 {
		throwShape(op, "step number %d: the first is 1", step)
	}
}
