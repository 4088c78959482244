package tensor

import (
	"fmt"
	"math"

	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// A ShapeError says that the sizes given to an operator do not fit.
type ShapeError struct {
	Op     string // the operator, "MatMul"
	Detail string // what differs, with numbers and names, and what to do
}

// Error gives all of it in one line.
func (e *ShapeError) Error() string { return "tensor: " + e.Op + ": " + e.Detail }

// A TypeError says that an operator has no meaning for an element type.
type TypeError struct {
	Op     string
	Detail string
}

// Error gives all of it in one line.
func (e *TypeError) Error() string { return "tensor: " + e.Op + ": " + e.Detail }

// A UseError says that the memory of a tensor cannot be used: it went back to the
// pool, it is on another device, or there is none left to allocate.
type UseError struct {
	Op     string
	Detail string
	Err    error // the cause, if there is one
}

// Error gives all of it in one line.
func (e *UseError) Error() string {
	if e.Err != nil {
		return "tensor: " + e.Op + ": " + e.Detail + ": " + e.Err.Error()
	}
	return "tensor: " + e.Op + ": " + e.Detail
}

// Unwrap returns the cause.
func (e *UseError) Unwrap() error { return e.Err }

// throwShape throws a *ShapeError.
func throwShape(op, format string, args ...any) {
	fault.Throw(&ShapeError{Op: op, Detail: fmt.Sprintf(format, args...)})
}

// throwType throws a *TypeError.
func throwType(op, format string, args ...any) {
	fault.Throw(&TypeError{Op: op, Detail: fmt.Sprintf(format, args...)})
}

// throwUse throws a *UseError.
func throwUse(op, format string, args ...any) {
	fault.Throw(&UseError{Op: op, Detail: fmt.Sprintf(format, args...)})
}

// wantSameType throws unless a and b have one element type and one device.
func wantSameType(op string, a, b *Tensor) {
	if a.dtype != b.dtype {
		throwType(op, "%v and %v: element types differ; Cast one of them", a.brief(), b.brief())
	}
	wantSameDevice(op, a, b)
}

// wantSameDevice throws unless a and b are on one device.
func wantSameDevice(op string, a, b *Tensor) {
	if a.dev != b.dev {
		throwUse(op, "%v is on %v and %v on %v; Copy one to the other's device", a.brief(), a.dev, b.brief(), b.dev)
	}
}

// wantFloat throws unless x is of a floating-point type.
func wantFloat(op string, x *Tensor) {
	if !x.dtype.Float() {
		throwType(op, "%v: wants a floating-point type; Cast first", x.brief())
	}
}

// wantWideType throws unless other is on x's device and of x's type, or of float32 if x is of
// a narrow type.
func wantWideType(op string, x, other *Tensor) {
	if dt := x.dtype.Wide(); other.dtype != dt {
		throwType(op, "%v beside %v: wants %v; Cast it", other.brief(), x.brief(), dt)
	}
	wantSameDevice(op, x, other)
}

// wantWhole throws if x holds integers and v is not whole.
func wantWhole(op string, x *Tensor, v float64) {
	if !x.dtype.Float() && (v != math.Trunc(v) || math.IsInf(v, 0)) {
		throwType(op, "%v and %v, which is no integer; Cast to a floating-point type first", x.brief(), v)
	}
}

// wantInt64 throws if x holds integers and v is not one of 64 bits, in which arithmetic with v is done.
func wantInt64(op string, x *Tensor, v float64) {
	wantWhole(op, x, v)
	if !x.dtype.Float() && !Int64.Holds(v) {
		throwType(op, "%v and %v, which int64 cannot hold; Cast to a floating-point type first", x.brief(), v)
	}
}

// wantNumber throws unless arithmetic is defined for x.
func wantNumber(op string, x *Tensor) {
	if !x.dtype.Float() && !x.dtype.Int() {
		throwType(op, "%v: wants a floating-point or an integer type; Cast first", x.brief())
	}
}

// wantOperands throws unless Binary is defined for a and b, shapes apart.
func wantOperands(op kernel.BinaryOp, a, b *Tensor) {
	if op.Takes(a.dtype) && a.dtype == b.dtype && a.dev == b.dev {
		return
	}
	wantOperand(op, a)
	wantSameType(op.String(), a, b)
}

// wantOperand throws unless Binary is defined for x's type.
func wantOperand(op kernel.BinaryOp, x *Tensor) {
	switch {
	case op.Takes(x.dtype):
	case op.Row().Integer == nil:
		wantFloat(op.String(), x)
	case op.Row().Value == nil:
		throwType(op.String(), "%v: wants an integer type; Cast first", x.brief())
	default:
		wantNumber(op.String(), x)
	}
}

// wantIndex throws unless x is Int32 or Int64.
func wantIndex(op, name string, x *Tensor) {
	if x.dtype != Int32 && x.dtype != Int64 {
		throwType(op, "%s %v: indices are int64 or int32", name, x.brief())
	}
}

// wantBool throws unless x is Bool.
func wantBool(op, name string, x *Tensor) {
	if x.dtype != Bool {
		throwType(op, "%s %v: wants bool", name, x.brief())
	}
}

// wantSameShape throws unless a and b have the same sizes.
func wantSameShape(op string, a, b *Tensor) {
	if !sameShape(a, b) {
		throwShape(op, "%v and %v: shapes differ", a.brief(), b.brief())
	}
}
