package tensor

import (
	"math"
	"runtime"
)

// A UnaryOp is an element-wise function of one argument.
type UnaryOp uint8

// The unary operators. Sqrt, Log and Rsqrt of a negative number are NaN.
const (
	OpNeg      UnaryOp = iota // -x
	OpAbs                     // |x|; gradient 0 at 0
	OpExp                     // eˣ
	OpLog                     // ln x
	OpSqrt                    // √x
	OpRsqrt                   // 1/√x
	OpTanh                    // tanh x
	OpSigmoid                 // 1/(1+e⁻ˣ)
	OpRelu                    // max(x, 0); gradient 0 at 0, dy at NaN as in PyTorch
	OpGelu                    // x·Φ(x), exact: Φ(x) = (1 + erf(x/√2))/2; at ±Inf it and its gradient have their limits
	OpGeluTanh                // x·½(1 + tanh(√(2/π)·(x + 0.044715·x³))); at ±Inf as OpGelu
	OpSilu                    // x·sigmoid(x); NaN at -Inf, and so its gradient at ±Inf, as in PyTorch
	OpSquare                  // x²
	OpSign                    // -1, 0 or 1; gradient 0
	unaryOps
)

var unaryNames = [unaryOps]string{"Neg", "Abs", "Exp", "Log", "Sqrt", "Rsqrt", "Tanh", "Sigmoid", "Relu", "Gelu", "GeluTanh", "Silu", "Square", "Sign"}

// String returns the name of the function, "Gelu".
func (op UnaryOp) String() string { return unaryNames[op] }

// NeedsInput reports whether UnaryGrad reads x, and NeedsOutput whether it reads
// y; a tape need not keep the other.
func (op UnaryOp) NeedsInput() bool {
	switch op {
	case OpAbs, OpLog, OpGelu, OpGeluTanh, OpSilu, OpSquare:
		return true
	}
	return false
}

// NeedsOutput reports whether UnaryGrad reads y.
func (op UnaryOp) NeedsOutput() bool {
	switch op {
	case OpExp, OpSqrt, OpRsqrt, OpTanh, OpSigmoid, OpRelu:
		return true
	}
	return false
}

// Unary returns op of each element of x, float32, float64 or bfloat16; Neg, Abs, Relu,
// Square and Sign take integers too. It throws a *TypeError for other types.
func Unary(op UnaryOp, x *Tensor) *Tensor {
	wantUnary(op, x)
	y := allocLike(op.String(), x)
	unaryTo(y, op, x)
	return y
}

// UnaryTo is Unary into dst, which may be x.
func UnaryTo(dst *Tensor, op UnaryOp, x *Tensor) {
	wantUnary(op, x)
	wantSameType(op.String(), dst, x)
	wantSameShape(op.String(), dst, x)
	unaryTo(dst, op, x)
}

func unaryTo(dst *Tensor, op UnaryOp, x *Tensor) {
	if inPieces(x) {
		wideElements(dst, func(dst *Tensor, x []*Tensor) { unaryTo(dst, op, x[0]) }, x)
		return
	}
	x.dev.Unary(op, x.dtype, dst.ptr(op.String()), x.ptr(op.String()), x.numel)
	runtime.KeepAlive(x)
}

func wantUnary(op UnaryOp, x *Tensor) {
	switch op {
	case OpNeg, OpAbs, OpRelu, OpSquare, OpSign:
		wantNumberOrHalf(op.String(), x)
	default:
		wantFloatOrHalf(op.String(), x)
	}
}

// UnaryGrad returns dx = dy·op'(x), where y = op(x). It reads x if
// op.NeedsInput() and y if op.NeedsOutput(); the others may be nil.
func UnaryGrad(op UnaryOp, dy, x, y *Tensor) *Tensor {
	name := op.String() + "Grad"
	wantFloatOrHalf(name, dy)
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
	unaryGradTo(name, dx, op, dy, px, py)
	return dx
}

func unaryGradTo(name string, dx *Tensor, op UnaryOp, dy, x, y *Tensor) {
	if inPieces(dy) {
		wideElements(dx, func(dx *Tensor, args []*Tensor) { unaryGradTo(name, dx, op, args[0], args[1], args[2]) }, dy, x, y)
		return
	}
	dy.dev.UnaryGrad(op, dy.dtype, dx.addr, dy.ptr(name), x.ptr(name), y.ptr(name), dy.numel)
	runtime.KeepAlive(dy)
	runtime.KeepAlive(x)
	runtime.KeepAlive(y)
}

// Neg returns -x.
func Neg(x *Tensor) *Tensor { return Unary(OpNeg, x) }

// Abs returns |x|.
func Abs(x *Tensor) *Tensor { return Unary(OpAbs, x) }

// Exp returns eˣ.
func Exp(x *Tensor) *Tensor { return Unary(OpExp, x) }

// Log returns ln x.
func Log(x *Tensor) *Tensor { return Unary(OpLog, x) }

// Sqrt returns √x.
func Sqrt(x *Tensor) *Tensor { return Unary(OpSqrt, x) }

// Rsqrt returns 1/√x.
func Rsqrt(x *Tensor) *Tensor { return Unary(OpRsqrt, x) }

// Tanh returns tanh x.
func Tanh(x *Tensor) *Tensor { return Unary(OpTanh, x) }

// Sigmoid returns 1/(1+e⁻ˣ).
func Sigmoid(x *Tensor) *Tensor { return Unary(OpSigmoid, x) }

// Relu returns max(x, 0).
func Relu(x *Tensor) *Tensor { return Unary(OpRelu, x) }

// Gelu returns x·Φ(x), with the exact error function.
func Gelu(x *Tensor) *Tensor { return Unary(OpGelu, x) }

// GeluTanh returns x·½(1 + tanh(√(2/π)·(x + 0.044715·x³))), which is close to Gelu.
func GeluTanh(x *Tensor) *Tensor { return Unary(OpGeluTanh, x) }

// Silu returns x·sigmoid(x).
func Silu(x *Tensor) *Tensor { return Unary(OpSilu, x) }

// Square returns x².
func Square(x *Tensor) *Tensor { return Unary(OpSquare, x) }

// Sign returns -1, 0 or 1.
func Sign(x *Tensor) *Tensor { return Unary(OpSign, x) }

// Clamp returns min(max(x, lo), hi). NaN stays NaN. For integers a bound beyond what
// their type holds is the end of the type.
func Clamp(x *Tensor, lo, hi float64) *Tensor {
	wantNumberOrHalf("Clamp", x)
	for _, v := range [...]float64{lo, hi} {
		if !math.IsInf(v, 0) {
			wantWhole("Clamp", x, v)
		}
	}
	if x.dtype == BFloat16 {
		return throughWide(func(x []*Tensor) *Tensor { return Clamp(x[0], lo, hi) }, x)
	}
	y, px := allocLike("Clamp", x), x.ptr("Clamp")
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
	wantFloatOrHalf("ClampGrad", dy)
	wantSameType("ClampGrad", dy, x)
	wantSameShape("ClampGrad", dy, x)
	if x.dtype == BFloat16 {
		return throughWide(func(x []*Tensor) *Tensor { return ClampGrad(x[0], x[1], lo, hi) }, dy, x)
	}
	dx := allocLike("ClampGrad", x)
	x.dev.ClampGrad(x.dtype, dx.addr, dy.ptr("ClampGrad"), x.ptr("ClampGrad"), lo, hi, x.numel)
	runtime.KeepAlive(dy)
	runtime.KeepAlive(x)
	return dx
}

// Not returns !x of a Bool tensor.
func Not(x *Tensor) *Tensor {
	wantBool("Not", "x", x)
	return CompareScalar(OpEq, x, 0)
}
