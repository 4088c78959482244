package tensor

import "runtime"

// A CompareOp is a comparison of two numbers.
type CompareOp uint8

// The comparisons. All but OpNe are false if an argument is NaN.
const (
	OpEq CompareOp = iota // a == b
	OpNe                  // a != b
	OpLt                  // a < b
	OpLe                  // a <= b
	OpGt                  // a > b
	OpGe                  // a >= b
	compareOps
)

var compareNames = [compareOps]string{"Eq", "Ne", "Lt", "Le", "Gt", "Ge"}

// String returns the name, "Lt".
func (op CompareOp) String() string { return compareNames[op] }

// Compare returns a Bool tensor of op over a and b, whose shapes broadcast.
// Bool compares with Bool, false before true.
func Compare(op CompareOp, a, b *Tensor) *Tensor {
	name := op.String()
	wantComparable(name, a)
	wantSameType(name, a, b)
	shape, n := broadcastShape(name, a, b)
	dst := alloc(name, a.dev, Bool, shape[:n])
	if a.dtype == BFloat16 {
		a, b = Widen(a), Widen(b)
		defer a.Free()
		defer b.Free()
	}
	a.dev.CompareLoop(op, a.dtype, dst.addr, a.ptr(name), b.ptr(name), loopOver(dst.Shape(), a.Shape(), b.Shape()))
	runtime.KeepAlive(a)
	runtime.KeepAlive(b)
	return dst
}

// CompareScalar returns a Bool tensor of op(x, v). Integers and Bool are compared
// as float64 with a v that is none of them.
func CompareScalar(op CompareOp, x *Tensor, v float64) *Tensor {
	if !holds(x.dtype, v) {
		x = Cast(x, Float64)
	}
	return Compare(op, x, Scalar(x.dev, x.dtype, v))
}

func wantComparable(op string, x *Tensor) {
	if x.dtype != Bool {
		wantNumberOrHalf(op, x)
	}
}

// Where returns a where cond is true and b elsewhere; the three broadcast. a and
// b have one element type, any.
func Where(cond, a, b *Tensor) *Tensor {
	wantBool("Where", "cond", cond)
	wantSameType("Where", a, b)
	wantSameDevice("Where", cond, a)
	ab, n := broadcastShape("Where", a, b)
	shape, ok := BroadcastShape(ab[:n], cond.Shape())
	if !ok {
		throwShape("Where", "%v, %v and %v do not broadcast", cond.brief(), a.brief(), b.brief())
	}
	dst := alloc("Where", a.dev, a.dtype, shape)
	a.dev.Where(a.dtype.Size(), dst.addr, a.ptr("Where"), b.ptr("Where"), cond.ptr("Where"),
		loopOver(dst.Shape(), a.Shape(), b.Shape(), cond.Shape()))
	runtime.KeepAlive(a)
	runtime.KeepAlive(b)
	runtime.KeepAlive(cond)
	return dst
}

// WhereGrad returns the gradients of Where in the shapes of a and b.
func WhereGrad(dy, cond *Tensor, aShape, bShape []int) (da, db *Tensor) {
	zero := Zeros(dy.dev, dy.dtype)
	da = SumTo(Where(cond, dy, zero), aShape...)
	db = SumTo(Where(cond, zero, dy), bShape...)
	return da, db
}

// MaskedFill returns x with v wherever mask, which broadcasts to x, is true. Its
// gradient is MaskedFill(dy, mask, 0).
func MaskedFill(x, mask *Tensor, v float64) *Tensor {
	if !broadcastsTo(mask.Shape(), x.Shape()) {
		throwShape("MaskedFill", "mask %v does not broadcast to %v", mask.brief(), x.brief())
	}
	wantWhole("MaskedFill", x, v)
	return Where(mask, Scalar(x.dev, x.dtype, v), x)
}
