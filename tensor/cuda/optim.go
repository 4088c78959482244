package cuda

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// SGD does one step of stochastic gradient descent; buf is nil without momentum.
func (g kernels) SGD(dt tensor.DType, param, grad, buf unsafe.Pointer, n int, o kernel.SGD) {
	if o.Momentum == 0 {
		buf = nil
	}
	g.typed("sgd", dt).ptr(param, grad, buf).i64(n).float(dt, o.LR).float(dt, o.Momentum).float(dt, o.Dampening).
		float(dt, o.WeightDecay).flag(o.Nesterov).each(n)
}

// Adam does one step of Adam or AdamW.
func (g kernels) Adam(a kernel.Adam) {
	l := g.typed("adam", a.DType).ptr(a.Param, a.Grad, a.Index, a.M, a.V)
	if a.Index == nil {
		put(l.i64(a.Numel(), 1), a.Step).each(a.Numel())
	} else {
		put(l.i64(a.Rows, a.Cols), a.Step).warps(a.Rows)
	}
}

// AdagradRows does one step of row-wise Adagrad.
func (g kernels) AdagradRows(a kernel.Adagrad) {
	g.typed("adagrad_rows", a.DType).ptr(a.Table, a.Grad, a.Index, a.State, a.Mean).i64(a.Rows, a.Cols).f64(a.LR).f64(a.Eps).warps(a.Rows)
}
