package tensor

import (
	"runtime"

	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Softmax returns exp(x)/Σexp(x), the sum being over dimension dim. The softmax of
// nothing but -Inf is NaN.
func Softmax(x *Tensor, dim int) *Tensor { return softmax(x, dim, false) }

// LogSoftmax returns x - ln Σexp(x), the sum being over dimension dim.
func LogSoftmax(x *Tensor, dim int) *Tensor { return softmax(x, dim, true) }

func softmax(x *Tensor, dim int, log bool) *Tensor {
	name := softmaxName(log)
	wantFloat(name, x)
	dim = x.axis(name, dim)
	if dim != x.NDim()-1 && x.numel > 0 {
		return Transpose(softmax(Transpose(x, dim, -1), -1, log), dim, -1)
	}
	y := allocLike(name, x)
	x.dev.Softmax(x.dtype, log, y.addr, x.ptr(name), x.rowsOf(x.dims[dim]))
	runtime.KeepAlive(x)
	return y
}

// SoftmaxGrad returns dx = y·(dy - Σ y·dy) for y = Softmax(x, dim).
func SoftmaxGrad(dy, y *Tensor, dim int) *Tensor { return softmaxGrad(dy, y, dim, false) }

// LogSoftmaxGrad returns dx = dy - exp(y)·Σdy for y = LogSoftmax(x, dim).
func LogSoftmaxGrad(dy, y *Tensor, dim int) *Tensor { return softmaxGrad(dy, y, dim, true) }

func softmaxGrad(dy, y *Tensor, dim int, log bool) *Tensor {
	name := softmaxName(log) + "Grad"
	wantFloat(name, dy)
	wantSameType(name, dy, y)
	wantSameShape(name, dy, y)
	dim = y.axis(name, dim)
	if dim != y.NDim()-1 && y.numel > 0 {
		return Transpose(softmaxGrad(Transpose(dy, dim, -1), Transpose(y, dim, -1), -1, log), dim, -1)
	}
	dx := allocLike(name, y)
	y.dev.SoftmaxGrad(y.dtype, log, dx.addr, dy.ptr(name), y.ptr(name), y.rowsOf(y.dims[dim]))
	keepAlive(dy, y)
	return dx
}

// rowsOf returns t as rows of n elements.
func (t *Tensor) rowsOf(n int) kernel.Matrix {
	return kernel.Matrix{Rows: t.numel / max(n, 1), Cols: n}
}

func softmaxName(log bool) string {
	if log {
		return "LogSoftmax"
	}
	return "Softmax"
}
