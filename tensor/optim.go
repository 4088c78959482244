package tensor

import (
	"math"
	"runtime"
	"unsafe"

	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// An SGD is the configuration of stochastic gradient descent, as torch.optim.SGD.
type SGD struct {
	LR, Momentum, Dampening, WeightDecay float64
	Nesterov                             bool
}

// Step updates param in place:
//
//	g = grad + WeightDecay·param
//	buf = Momentum·buf + (1-Dampening)·g      (buf = g on the first step)
//	param -= LR·(buf, or g + Momentum·buf with Nesterov)
//
// buf has param's shape, and zeros on the first step; with Momentum 0 it is not used and may be nil.
// grad is not changed.
func (o SGD) Step(param, grad, buf *Tensor, first bool) {
	const op = "SGD"
	wantStep(op, param, grad)
	if o.Momentum != 0 {
		if buf == nil {
			throwShape(op, "%v: momentum %g needs a buffer", param.brief(), o.Momentum)
		}
		wantState(op, param, buf)
	}
	if first {
		o.Dampening = 0
	}
	param.dev.SGD(param.dtype, param.change(op), grad.ptr(op), addrOf(op, buf), param.numel, kernel.SGD(o))
	keepAlive(grad, buf)
}

// StepRows is Step for the rows that grad names. It throws a *ShapeError for Momentum or WeightDecay,
// which touch every row.
func (o SGD) StepRows(table *Tensor, grad Rows) {
	if o.Momentum != 0 || o.WeightDecay != 0 {
		throwShape("SGD", "%v: momentum %g and weight decay %g touch every row; make the gradient dense", table.brief(), o.Momentum,
			o.WeightDecay)
	}
	addRowsTo("SGD", table, grad, -o.LR)
}

// An Adam is the configuration of Adam and AdamW, as torch.optim has them.
type Adam struct {
	LR, Beta1, Beta2, Eps, WeightDecay float64
	Coupled                            bool // Adam: the decay is part of the gradient; false is AdamW
}

// constants returns the constants of step number step.
func (o Adam) constants(step int) kernel.AdamStep {
	s := kernel.AdamStep{
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

// Step updates param and the moments m and v in place; the first step is number 1:
//
//	m = β1·m + (1-β1)·g    v = β2·v + (1-β2)·g²
//	param = (1-LR·decay)·param - LR/(1-β1ᵗ) · m / (√v/√(1-β2ᵗ) + Eps)
//
// m and v have param's shape and start as zeros.
func (o Adam) Step(param, grad, m, v *Tensor, step int) {
	const op = "Adam"
	wantStep(op, param, grad)
	wantState(op, param, m)
	wantState(op, param, v)
	wantStepNumber(op, step)
	o.apply(param, grad, m, v, nil, kernel.Matrix{Rows: 1, Cols: param.numel}, step)
}

// StepRows is the lazy form, as torch.optim.SparseAdam: only the rows of table, m and v that the
// gradient names change, without weight decay.
func (o Adam) StepRows(table *Tensor, grad Rows, m, v *Tensor, step int) {
	const op = "Adam"
	wantRows(op, table, grad)
	wantState(op, table, m)
	wantState(op, table, v)
	wantStepNumber(op, step)
	o.WeightDecay = 0
	o.apply(table, grad.Values, m, v, grad.Index, kernel.Matrix{Rows: grad.Index.numel, Cols: table.dims[1]}, step)
}

// apply does one step on rows of param: those that index names, or all if it is nil.
func (o Adam) apply(param, grad, m, v, index *Tensor, size kernel.Matrix, step int) {
	const op = "Adam"
	param.dev.Adam(kernel.Adam{Matrix: size, DType: param.dtype, Param: param.change(op), Grad: grad.ptr(op), M: m.ptr(op),
		V: v.ptr(op), Index: addrOf(op, index), Step: o.constants(step)})
	keepAlive(grad, index)
}

// An Adagrad is the configuration of row-wise Adagrad: one accumulator a row.
type Adagrad struct {
	LR, Eps float64
}

// StepRows updates the rows of table [R, D] that the gradient names, and their
// accumulators state [R]:
//
//	state[r] += mean of g²      table[r] -= LR·g/(√state[r] + Eps)
//
// state starts as zeros. mean is nil, or of a table that has some columns of each row only: there it
// has, float64, the mean of g² over the whole of each of the gradient's rows.
func (o Adagrad) StepRows(table *Tensor, grad Rows, state, mean *Tensor) {
	const op = "Adagrad"
	wantRows(op, table, grad)
	wantFloat(op, table)
	wantWideType(op, table, state)
	if state.numel != table.dims[0] {
		throwShape(op, "state %v for table %v: want one number a row", state.brief(), table.brief())
	}
	if mean != nil && (mean.dtype != Float64 || mean.numel != grad.Index.numel) {
		throwShape(op, "mean %v for gradient %v: want one float64 a row", mean.brief(), grad.Values.brief())
	}
	table.dev.AdagradRows(kernel.Adagrad{Matrix: kernel.Matrix{Rows: grad.Index.numel, Cols: table.dims[1]}, DType: table.dtype,
		Table: table.change(op), Grad: grad.Values.ptr(op), State: state.ptr(op), Index: grad.Index.ptr(op),
		Mean: addrOf(op, mean), LR: o.LR, Eps: o.Eps})
	keepAlive(grad.Index, grad.Values, mean)
}

// SumSquares returns Σx² over the elements of each tensor, computed in float64. The
// tensors are on one device, for which it waits once.
func SumSquares(xs ...*Tensor) []float64 {
	const op = "SumSquares"
	if len(xs) == 0 {
		return nil
	}
	sums := New(xs[0].dev, Float64, len(xs))
	defer sums.Free()
	for i, x := range xs {
		wantFloat(op, x)
		wantSameDevice(op, xs[0], x)
		x.dev.SumSquares(unsafe.Add(sums.addr, i*Float64.Size()), x.dtype, x.ptr(op), x.numel)
		runtime.KeepAlive(x)
	}
	return ToSlice[float64](sums)
}

// ColumnSquares returns Σx² over the rows of a matrix, for each column, in float64. On a CPU the sum of a column does not depend
// on what is beside it.
func ColumnSquares(x *Tensor) []float64 {
	const op = "ColumnSquares"
	wantFloat(op, x)
	if x.ndim != 2 {
		throwShape(op, "%v: want 2 dimensions", x.brief())
	}
	sums := New(x.dev, Float64, x.dims[1])
	defer sums.Free()
	x.dev.ColumnSquares(sums.addr, x.dtype, x.ptr(op), kernel.Matrix{Rows: x.dims[0], Cols: x.dims[1]})
	runtime.KeepAlive(x)
	return ToSlice[float64](sums)
}

// wantState throws unless state, an optimizer's state for param, fits it.
func wantState(op string, param, state *Tensor) {
	wantFloat(op, param)
	wantWideType(op, param, state)
	wantSameShape(op, param, state)
}

// wantStep throws unless a parameter and its gradient fit.
func wantStep(op string, param, grad *Tensor) {
	wantFloat(op, param)
	wantSameType(op, param, grad)
	wantSameShape(op, param, grad)
}

func wantStepNumber(op string, step int) {
	if step < 1 {
		throwShape(op, "step number %d: the first is 1", step)
	}
}
