package tensor

import (
	"math"
	"runtime"

	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Unary returns op of each element of x. It throws a *TypeError unless x is of a
// floating-point type; Neg, Abs, Relu, Square and Sign take integers too.
func Unary(op kernel.UnaryOp, x *Tensor) *Tensor {
	wantUnary(op, x)
	y := allocLike(op.String(), x)
	x.dev.Unary(op, x.dtype, y.addr, x.ptr(op.String()), x.numel)
	runtime.KeepAlive(x)
	return y
}

func wantUnary(op kernel.UnaryOp, x *Tensor) {
	if op.Row().Integer != nil {
		wantNumber(op.String(), x)
	} else {
		wantFloat(op.String(), x)
	}
}

// UnaryGrad returns dx = dy·op'(x), where y = op(x). x may be nil unless op.NeedsInput(),
// and y unless op.NeedsOutput().
func UnaryGrad(op kernel.UnaryOp, dy, x, y *Tensor) *Tensor {
	name := op.String() + "Grad"
	wantFloat(name, dy)
	px, py := dy, dy // a valid address for what is not read
	if op.NeedsInput() {
		wantSameType(name, dy, x)
		wantSameShape(name, dy, x)
		px = x
	}
	if op.NeedsOutput() {
		wantSameType(name, dy, y)
		wantSameShape(name, dy, y)
		py = y
	}
	dx := allocLike(name, dy)
	dy.dev.UnaryGrad(op, dy.dtype, dx.addr, kernel.Slope{DY: dy.ptr(name), X: px.ptr(name), Y: py.ptr(name)}, dy.numel)
	keepAlive(dy, px, py)
	return dx
}

// Clamp returns min(max(x, lo), hi). NaN stays NaN. For an integer type, a bound that the
// type does not hold stands for the nearest that it holds.
func Clamp(x *Tensor, lo, hi float64) *Tensor {
	const op = "Clamp"
	wantNumber(op, x)
	for _, v := range [...]float64{lo, hi} {
		if !math.IsInf(v, 0) {
			wantWhole(op, x, v)
		}
	}
	y, px := allocLike(op, x), x.ptr(op)
	if lo = min(lo, hi); x.dtype.Float() {
		x.dev.Clamp(x.dtype, y.addr, px, lo, hi, x.numel)
	} else {
		x.dev.ClampInt(x.dtype, y.addr, px, nearestInt(x.dtype, lo), nearestInt(x.dtype, hi), x.numel)
	}
	runtime.KeepAlive(x)
	return y
}

// ClampGrad returns dy where lo <= x <= hi, else 0.
func ClampGrad(dy, x *Tensor, lo, hi float64) *Tensor {
	const op = "ClampGrad"
	wantFloat(op, dy)
	wantSameType(op, dy, x)
	wantSameShape(op, dy, x)
	dx := allocLike(op, x)
	x.dev.ClampGrad(x.dtype, dx.addr, kernel.Slope{DY: dy.ptr(op), X: x.ptr(op)}, lo, hi, x.numel)
	keepAlive(dy, x)
	return dx
}

// Leaky returns dy where x > 0, else dy·slope: the leaky ReLU of x if dy is x, and else its gradient.
func Leaky(dy, x *Tensor, slope float64) *Tensor {
	const op = "Leaky"
	wantFloat(op, dy)
	wantSameType(op, dy, x)
	wantSameShape(op, dy, x)
	y := allocLike(op, x)
	x.dev.Leaky(x.dtype, y.addr, kernel.Slope{DY: dy.ptr(op), X: x.ptr(op)}, slope, x.numel)
	keepAlive(dy, x)
	return y
}
