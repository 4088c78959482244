package tensor

import (
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Binary returns op of the elements of a and b, which have one element type; their shapes broadcast as
// NumPy's do: aligned at the last dimension, a size of 1 is repeated.
func Binary(op kernel.BinaryOp, a, b *Tensor) *Tensor {
	name := op.String()
	wantOperands(op, a, b)
	var dst *Tensor
	if sameShape(a, b) {
		dst = allocLike(name, a)
		a.dev.Binary(op, a.dtype, dst.addr, a.ptr(name), b.ptr(name), a.numel)
	} else {
		shape, n := broadcastShape(name, a, b)
		dst = alloc(name, a.dev, a.dtype, shape[:n])
		broadcastTo(name, dst, op, a, b)
	}
	keepAlive(a, b)
	return dst
}

// BinaryTo is Binary into dst, which has the broadcast shape and may be a or b if
// that has the same shape.
func BinaryTo(dst *Tensor, op kernel.BinaryOp, a, b *Tensor) {
	name := op.String()
	wantOperands(op, a, b)
	wantSameType(name, dst, a)
	shape, n := broadcastShape(name, a, b)
	if !slices.Equal(dst.Shape(), shape[:n]) {
		throwShape(name, "%v and %v do not broadcast to the destination %v", a.brief(), b.brief(), dst.brief())
	}
	if sameShape(a, b) {
		a.dev.Binary(op, a.dtype, dst.change(name), a.ptr(name), b.ptr(name), a.numel)
	} else {
		broadcastTo(name, dst, op, a, b)
	}
	keepAlive(a, b)
}

// broadcastTo computes op of a and b, whose shapes broadcast to that of dst, into dst.
// The caller keeps a and b alive.
func broadcastTo(name string, dst *Tensor, op kernel.BinaryOp, a, b *Tensor) {
	a.dev.BinaryLoop(op, a.dtype, dst.change(name), a.ptr(name), b.ptr(name), loopOver(dst.Shape(), a.Shape(), b.Shape()))
}

// Add returns a + b.
func Add(a, b *Tensor) *Tensor { return Binary(kernel.OpAdd, a, b) }

// Mul returns a·b, element by element.
func Mul(a, b *Tensor) *Tensor { return Binary(kernel.OpMul, a, b) }

// BinaryScalar returns op(x, v) for each element of x. v is rounded to x's type, for
// a narrow type to float32. It throws a *TypeError if x holds integers and v is no
// integer of 64 bits.
func BinaryScalar(op kernel.BinaryOp, x *Tensor, v float64) *Tensor {
	name := op.String()
	wantOperand(op, x)
	wantInt64(name, x, v)
	dst := allocLike(name, x)
	x.dev.BinaryScalar(op, x.dtype, dst.addr, x.ptr(name), kernel.Number{Value: v}, x.numel)
	runtime.KeepAlive(x)
	return dst
}

// AddScalar returns x + v.
func AddScalar(x *Tensor, v float64) *Tensor { return BinaryScalar(kernel.OpAdd, x, v) }

// MulScalar returns x·v.
func MulScalar(x *Tensor, v float64) *Tensor { return BinaryScalar(kernel.OpMul, x, v) }

// AddTo adds src, of the same shape, to dst.
func AddTo(dst, src *Tensor) {
	const op = "AddTo"
	wantNumber(op, dst)
	wantSameType(op, dst, src)
	wantSameShape(op, dst, src)
	d := dst.change(op)
	dst.dev.Binary(kernel.OpAdd, dst.dtype, d, d, src.ptr(op), dst.numel)
	runtime.KeepAlive(src)
}

// AddScaledTo adds alpha·src, of the same shape, to dst.
func AddScaledTo(dst *Tensor, alpha float64, src *Tensor) {
	const op = "AddScaledTo"
	wantFloat(op, dst)
	wantSameType(op, dst, src)
	wantSameShape(op, dst, src)
	dst.dev.Axpy(dst.dtype, dst.change(op), alpha, src.ptr(op), dst.numel)
	runtime.KeepAlive(src)
}

// ScaleTo multiplies dst by v.
func ScaleTo(dst *Tensor, v float64) {
	const op = "ScaleTo"
	wantNumber(op, dst)
	wantInt64(op, dst, v)
	d := dst.change(op)
	dst.dev.BinaryScalar(kernel.OpMul, dst.dtype, d, d, kernel.Number{Value: v}, dst.numel)
}
