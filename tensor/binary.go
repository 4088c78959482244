package tensor

import "runtime"

// A BinaryOp is an element-wise function of two arguments.
type BinaryOp uint8

// The binary operators.
const (
	OpAdd     BinaryOp = iota // a + b
	OpSub                     // a - b
	OpMul                     // a · b
	OpDiv                     // a / b; integers truncate, and throw nothing: x/0 is 0
	OpMaximum                 // max(a, b); NaN if one is, and -0 is below 0
	OpMinimum                 // min(a, b); NaN if one is, and -0 is below 0
	OpPow                     // aᵇ
	binaryOps
)

var binaryNames = [binaryOps]string{"Add", "Sub", "Mul", "Div", "Maximum", "Minimum", "Pow"}

// String returns the name of the function, "Add".
func (op BinaryOp) String() string { return binaryNames[op] }

// Binary returns op of the elements of a and b, which have one element type;
// their shapes broadcast as NumPy's do: aligned at the last dimension, a size of
// 1 is repeated. It throws a *ShapeError for other shapes. Bfloat16 is computed with
// as float32 and rounded.
func Binary(op BinaryOp, a, b *Tensor) *Tensor {
	name := op.String()
	wantOperands(name, a, b)
	var dst *Tensor
	if sameShape(a, b) {
		dst = allocLike(name, a)
		a.dev.Binary(op, a.dtype, dst.addr, a.ptr(name), b.ptr(name), a.numel)
	} else {
		shape, n := broadcastShape(name, a, b)
		dst = alloc(name, a.dev, a.dtype, shape[:n])
		broadcastTo(name, dst, op, a, b)
	}
	runtime.KeepAlive(a)
	runtime.KeepAlive(b)
	return dst
}

// BinaryTo is Binary into dst, which has the broadcast shape and may be a or b if
// that has the same shape.
func BinaryTo(dst *Tensor, op BinaryOp, a, b *Tensor) {
	name := op.String()
	wantOperands(name, a, b)
	wantSameType(name, dst, a)
	shape, n := broadcastShape(name, a, b)
	if !equalInts(dst.Shape(), shape[:n]) {
		throwShape(name, "%v and %v do not broadcast to the destination %v", a.brief(), b.brief(), dst.brief())
	}
	if sameShape(a, b) {
		a.dev.Binary(op, a.dtype, dst.ptr(name), a.ptr(name), b.ptr(name), a.numel)
	} else {
		broadcastTo(name, dst, op, a, b)
	}
	runtime.KeepAlive(a)
	runtime.KeepAlive(b)
}

// broadcastTo computes op of a and b, whose shapes broadcast to that of dst, into dst.
// The caller keeps a and b alive.
func broadcastTo(name string, dst *Tensor, op BinaryOp, a, b *Tensor) {
	if inPieces(a) {
		x, y, wide := Widen(a), Widen(b), New(dst.dev, Float32, dst.Shape()...)
		broadcastTo(name, wide, op, x, y)
		CastTo(dst, wide)
		for _, t := range []*Tensor{x, y, wide} {
			t.Free()
		}
		return
	}
	a.dev.BinaryLoop(op, a.dtype, dst.ptr(name), a.ptr(name), b.ptr(name), loopOver(dst.Shape(), a.Shape(), b.Shape()))
}

// Add returns a + b.
func Add(a, b *Tensor) *Tensor { return Binary(OpAdd, a, b) }

// Sub returns a - b.
func Sub(a, b *Tensor) *Tensor { return Binary(OpSub, a, b) }

// Mul returns a·b, element by element.
func Mul(a, b *Tensor) *Tensor { return Binary(OpMul, a, b) }

// Div returns a/b, element by element.
func Div(a, b *Tensor) *Tensor { return Binary(OpDiv, a, b) }

// Maximum returns the larger of each pair.
func Maximum(a, b *Tensor) *Tensor { return Binary(OpMaximum, a, b) }

// Minimum returns the smaller of each pair.
func Minimum(a, b *Tensor) *Tensor { return Binary(OpMinimum, a, b) }

// Pow returns aᵇ.
func Pow(a, b *Tensor) *Tensor { return Binary(OpPow, a, b) }

// BinaryGrad returns the gradients of Binary(op, a, b), in the shapes of a and b.
// Where Maximum and Minimum have equal arguments each gets half, where one is NaN
// each gets all. wantA and wantB
// say which are wanted; the other is nil.
func BinaryGrad(op BinaryOp, dy, a, b *Tensor, wantA, wantB bool) (da, db *Tensor) {
	wantFloatOrHalf(op.String()+"Grad", dy)
	if dy.dtype == BFloat16 {
		da, db = BinaryGrad(op, Widen(dy), Widen(a), Widen(b), wantA, wantB)
		return narrowed(da), narrowed(db)
	}
	switch op {
	case OpAdd:
		da, db = pick(wantA, dy), pick(wantB, dy)
	case OpSub:
		da = pick(wantA, dy)
		if wantB {
			db = Neg(SumTo(dy, b.Shape()...))
		}
	case OpMul:
		if wantA {
			da = Mul(dy, b)
		}
		if wantB {
			db = Mul(dy, a)
		}
	case OpDiv:
		q := Div(dy, b)
		da = pick(wantA, q)
		if wantB { // -dy·a/b²
			db = Neg(Div(Mul(q, a), b))
		}
	case OpMaximum, OpMinimum:
		loses := OpLt
		if op == OpMinimum {
			loses = OpGt
		}
		share := Mul(dy, AddScalar(MulScalar(Cast(Compare(OpEq, a, b), dy.dtype), -0.5), 1))
		if wantA {
			da = MaskedFill(share, Compare(loses, a, b), 0)
		}
		if wantB {
			db = MaskedFill(share, Compare(loses, b, a), 0)
		}
	case OpPow:
		if wantA { // b·aᵇ⁻¹; 0 where b is 0
			p := Mul(b, Pow(a, BinaryScalar(OpSub, b, 1)))
			da = Mul(dy, Where(CompareScalar(OpEq, b, 0), ZerosLike(p), p))
		}
		if wantB { // aᵇ·ln a; 0 where a is 0 and b not negative
			p := Mul(Pow(a, b), Log(a))
			none := Where(CompareScalar(OpLt, b, 0), Scalar(a.dev, Bool, 0), CompareScalar(OpEq, a, 0))
			db = Mul(dy, Where(none, Scalar(p.dev, p.dtype, 0), p))
		}
	}
	if da != nil {
		da = SumTo(da, a.Shape()...)
	}
	if db != nil {
		db = SumTo(db, b.Shape()...)
	}
	return da, db
}

func pick(want bool, t *Tensor) *Tensor {
	if want {
		return t
	}
	return nil
}

// BinaryScalar returns op(x, v) for each element of x; v is rounded to x's type, for
// bfloat16 to float32. It throws a *TypeError for integers and a v that is none.
func BinaryScalar(op BinaryOp, x *Tensor, v float64) *Tensor {
	return scalarOp(op, x, v, false)
}

// ScalarBinary returns op(v, x) for each element of x.
func ScalarBinary(op BinaryOp, v float64, x *Tensor) *Tensor {
	return scalarOp(op, x, v, true)
}

func scalarOp(op BinaryOp, x *Tensor, v float64, swap bool) *Tensor {
	name := op.String()
	wantNumberOrHalf(name, x)
	wantWhole(name, x, v)
	dst := allocLike(name, x)
	x.dev.BinaryScalar(op, x.dtype, dst.addr, x.ptr(name), v, swap, x.numel)
	runtime.KeepAlive(x)
	return dst
}

// AddScalar returns x + v.
func AddScalar(x *Tensor, v float64) *Tensor { return BinaryScalar(OpAdd, x, v) }

// MulScalar returns x·v.
func MulScalar(x *Tensor, v float64) *Tensor { return BinaryScalar(OpMul, x, v) }

// AddTo adds src, of the same shape, to dst.
func AddTo(dst, src *Tensor) {
	wantNumberOrHalf("AddTo", dst)
	wantSameType("AddTo", dst, src)
	wantSameShape("AddTo", dst, src)
	d := dst.ptr("AddTo")
	dst.dev.Binary(OpAdd, dst.dtype, d, d, src.ptr("AddTo"), dst.numel)
	runtime.KeepAlive(src)
}

// AddScaledTo adds alpha·src, of the same shape, to dst.
func AddScaledTo(dst *Tensor, alpha float64, src *Tensor) {
	wantFloatOrHalf("AddScaledTo", dst)
	wantSameType("AddScaledTo", dst, src)
	wantSameShape("AddScaledTo", dst, src)
	if inPieces(dst) {
		editElements(dst, func(dst *Tensor, args []*Tensor) { AddScaledTo(dst, alpha, args[0]) }, src)
		return
	}
	dst.dev.Axpy(dst.dtype, dst.ptr("AddScaledTo"), alpha, src.ptr("AddScaledTo"), dst.numel)
	runtime.KeepAlive(src)
}

// ScaleTo multiplies dst by v.
func ScaleTo(dst *Tensor, v float64) {
	wantNumberOrHalf("ScaleTo", dst)
	wantWhole("ScaleTo", dst, v)
	d := dst.ptr("ScaleTo")
	dst.dev.BinaryScalar(OpMul, dst.dtype, d, d, v, false, dst.numel)
}
