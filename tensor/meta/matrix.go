package meta

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Cumsum counts, and adds integers up.
func (d *Device) Cumsum(dt dtype.DType, reverse bool, dst, x unsafe.Pointer, a kernel.Axis) {
	d.elements("Cumsum", dt, a.Numel(), 1, 2)
	if !dt.Float() {
		d.compute(func() { d.real.Cumsum(dt, reverse, dst, x, a) })
	}
}

// Reduce counts, and reduces integers.
func (d *Device) Reduce(op kernel.ReduceOp, dt dtype.DType, dst, x unsafe.Pointer, a kernel.Axis) {
	d.elements(op.String(), dt, a.Numel(), 1, 1)
	if !dt.Float() {
		d.compute(func() { d.real.Reduce(op, dt, dst, x, a) })
	}
}

// Attention counts two products of [T, S], half of them if it is causal, and the softmax.
func (d *Device) Attention(a kernel.Attention) { d.attends("Attention", a, 1, 1) }

// AttentionGrad counts five products: the scores once more, and the gradients of q, k, v and them.
func (d *Device) AttentionGrad(a kernel.AttentionGrad) { d.attends("AttentionGrad", a.Attention, 3, 2) }

func (d *Device) attends(name string, a kernel.Attention, withD, withE int) {
	pairs := a.Heads * a.T * a.S
	if a.Causal {
		pairs /= 2
	}
	tensors := a.Heads * (a.T*(a.D+a.E) + a.S*(a.D+a.E)) * a.DType.Size()
	d.product(name, a.DType, pairs*(2*withD*a.D+2*withE*a.E+function), (withD+withE)/2*tensors, 1)
}

// MatMul counts the products of all matrices of l.
func (d *Device) MatMul(dt dtype.DType, g kernel.Gemm, _, _, _ unsafe.Pointer, l kernel.Loop) {
	n := l.Numel()
	d.product("MatMul", dt, 2*n*g.M*g.N*g.K, n*(g.M*g.K+g.K*g.N+g.M*g.N)*dt.Size(), n)
}

// Softmax counts.
func (d *Device) Softmax(dt dtype.DType, _ bool, _, _ unsafe.Pointer, m kernel.Matrix) {
	d.elements("Softmax", dt, m.Numel(), function+3, 3)
}

// SoftmaxGrad counts.
func (d *Device) SoftmaxGrad(dt dtype.DType, _ bool, _, _, _ unsafe.Pointer, m kernel.Matrix) {
	d.elements("SoftmaxGrad", dt, m.Numel(), 4, 3)
}

// Norm counts.
func (d *Device) Norm(n kernel.Norm) { d.elements("Norm", n.DType, n.Numel(), 8, 3) }

// NormGrad counts.
func (d *Device) NormGrad(n kernel.NormGrad) { d.elements("NormGrad", n.DType, n.Numel(), 12, 4) }

// RowStat counts.
func (d *Device) RowStat(op kernel.RowOp, dt dtype.DType, _, _ unsafe.Pointer, m kernel.Matrix, _ float64) {
	d.elements(op.String(), dt, m.Numel(), function, 2)
}

// TopK counts, and names the columns r, r+1, … of row r, so that all are named equally often.
// Of integers it finds the largest.
func (d *Device) TopK(dt dtype.DType, values, index, x unsafe.Pointer, m kernel.Matrix, k int) {
	d.elements("TopK", dt, m.Numel(), 2, 1)
	if !dt.Float() {
		d.compute(func() { d.real.TopK(dt, values, index, x, m, k) })
		return
	}
	at := unsafe.Slice((*int64)(index), m.Rows*k)
	for i := range at {
		at[i] = int64((i/k + i%k) % m.Cols)
	}
}

// CrossEntropyStats counts.
func (d *Device) CrossEntropyStats(_ unsafe.Pointer, l kernel.ClassLogits, _ bool) {
	d.elements("CrossEntropyStats", l.DType, l.Rows*l.Classes, function+2, 2)
}

// CrossEntropyJoin counts.
func (d *Device) CrossEntropyJoin(dt dtype.DType, _, _ unsafe.Pointer, n int, _, _ float64) {
	d.elements("CrossEntropyJoin", dt, n*kernel.Stats, function, 3)
}

// CrossEntropyGrad counts.
func (d *Device) CrossEntropyGrad(to dtype.DType, _ unsafe.Pointer, l kernel.ClassLogits, _, _ unsafe.Pointer) {
	n := l.Rows * l.Classes
	d.count("CrossEntropyGrad", n*(function+2), n*(to.Size()+l.DType.Size()))
}

// SGD counts.
func (d *Device) SGD(dt dtype.DType, param, grad, buf unsafe.Pointer, n int, _ kernel.SGD) {
	d.updates(param, grad, false, buf)
	d.elements("SGD", dt, n, 4, 4)
}

// Adam counts.
func (d *Device) Adam(a kernel.Adam) {
	d.updates(a.Param, a.Grad, a.Index != nil, a.M, a.V)
	d.elements("Adam", a.DType, a.Numel(), 12, 7)
}

// AdagradRows counts.
func (d *Device) AdagradRows(a kernel.Adagrad) {
	d.updates(a.Table, a.Grad, true, a.State)
	d.byRow("AdagradRows", a.Rows, 6*a.Numel(), 4*a.Numel()*a.DType.Size())
}

// SumSquares counts.
func (d *Device) SumSquares(_ unsafe.Pointer, dt dtype.DType, _ unsafe.Pointer, n int) {
	d.elements("SumSquares", dt, n, 2, 1)
}

// ColumnSquares counts.
func (d *Device) ColumnSquares(_ unsafe.Pointer, dt dtype.DType, _ unsafe.Pointer, m kernel.Matrix) {
	d.elements("ColumnSquares", dt, m.Rows*m.Cols, 2, 1)
}
