package cuda

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/tensor"
)

// SGD does one step of stochastic gradient descent; buf is nil without momentum.
func (g *Device) SGD(dt tensor.DType, param, grad, buf unsafe.Pointer, n int, o tensor.SGD) {
	if o.Momentum == 0 {
		buf = nil
	}
	g.typed("sgd", dt).ptr(param, grad, buf).i64(n).float(dt, o.LR).float(dt, o.Momentum).float(dt, o.Dampening).
		float(dt, o.WeightDecay).flag(o.Nesterov).each(n)
}

// Adam does one step of Adam or AdamW.
func (g *Device) Adam(dt tensor.DType, param, grad, m, v unsafe.Pointer, n int, s tensor.AdamStep) {
	put(g.typed("adam", dt).ptr(param, grad, nil, m, v).i64(n, 1), s).each(n)
}

// AdamRows does a step of Adam on the rows index of param, m and v.
func (g *Device) AdamRows(dt tensor.DType, param, grad, index, m, v unsafe.Pointer, n, dim int, s tensor.AdamStep) {
	put(g.typed("adam", dt).ptr(param, grad, index, m, v).i64(n, dim), s).warps(n)
}

// AdagradRows does a step of row-wise Adagrad on the rows index of table; state
// has a number a row.
func (g *Device) AdagradRows(dt tensor.DType, table, grad, index, state unsafe.Pointer, n, dim int, lr, eps float64) {
	g.typed("adagrad_rows", dt).ptr(table, grad, index, state).i64(n, dim).f64(lr).f64(eps).warps(n)
}
