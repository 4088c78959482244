package tensor

import "github.com/gorun-spmd/gorun/tensor/kernel"

// Compare returns a Bool tensor of op over a and b, whose shapes broadcast.
// Bool compares with Bool, false before true.
func Compare(op kernel.CompareOp, a, b *Tensor) *Tensor {
	name := op.String()
	wantComparable(name, a)
	wantSameType(name, a, b)
	shape, n := broadcastShape(name, a, b)
	dst := alloc(name, a.dev, Bool, shape[:n])
	a.dev.CompareLoop(op, a.dtype, dst.addr, a.ptr(name), b.ptr(name), loopOver(dst.Shape(), a.Shape(), b.Shape()))
	keepAlive(a, b)
	return dst
}

// CompareScalar returns a Bool tensor of op(x, v). If the type of x is integer or Bool
// and has no v, the elements are compared as float64.
func CompareScalar(op kernel.CompareOp, x *Tensor, v float64) *Tensor {
	if !x.dtype.Holds(v) {
		x = Cast(x, Float64)
	}
	return Compare(op, x, Full(x.dev, x.dtype, v))
}

func wantComparable(op string, x *Tensor) {
	if x.dtype != Bool {
		wantNumber(op, x)
	}
}

// Where returns a where cond is true and b elsewhere; the three broadcast. a and
// b have one element type, any.
func Where(cond, a, b *Tensor) *Tensor {
	const op = "Where"
	wantBool(op, "cond", cond)
	wantSameType(op, a, b)
	wantSameDevice(op, cond, a)
	ab, n := broadcastShape(op, a, b)
	shape, n, differ := broadcastSizes(ab[:n], cond.Shape())
	if differ != "" {
		throwShape(op, "%v, %v and %v do not broadcast", cond.brief(), a.brief(), b.brief())
	}
	dst := alloc(op, a.dev, a.dtype, shape[:n])
	a.dev.Where(a.dtype.Size(), dst.addr, a.ptr(op), b.ptr(op), cond.ptr(op),
		loopOver(dst.Shape(), a.Shape(), b.Shape(), cond.Shape()))
	keepAlive(a, b, cond)
	return dst
}

// MaskedFill returns x with v wherever mask, which broadcasts to x, is true. Its
// gradient is MaskedFill(dy, mask, 0).
func MaskedFill(x, mask *Tensor, v float64) *Tensor {
	const op = "MaskedFill"
	if !broadcastsTo(mask.Shape(), x.Shape()) {
		throwShape(op, "mask %v does not broadcast to %v", mask.brief(), x.brief())
	}
	wantWhole(op, x, v)
	return Where(mask, Full(x.dev, x.dtype, v), x)
}
