package kernel

import (
	"math"

	"github.com/gorun-spmd/gorun/internal/activation"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// A UnaryOp is an element-wise function of one argument.
type UnaryOp uint8

// The unary operators. Sqrt, Log and Rsqrt of a negative number are NaN.
const (
	OpNeg         UnaryOp = iota // -x
	OpAbs                        // |x|; gradient 0 at 0
	OpExp                        // eˣ
	OpLog                        // ln x
	OpSqrt                       // √x
	OpRsqrt                      // 1/√x
	OpTanh                       // tanh x
	OpSigmoid                    // 1/(1+e⁻ˣ)
	OpRelu                       // max(x, 0); gradient 0 at 0, dy at NaN as in PyTorch
	OpGelu                       // x·Φ(x), exact: Φ(x) = (1 + erf(x/√2))/2; at ±Inf it and its gradient have their limits
	OpGeluTanh                   // x·½(1 + tanh(√(2/π)·(x + 0.044715·x³))); at ±Inf as OpGelu
	OpSilu                       // x·sigmoid(x); NaN at -Inf, and so its gradient at ±Inf, as in PyTorch
	OpSquare                     // x²
	OpSign                       // -1, 0 or 1; gradient 0
	OpErf                        // the error function
	OpSin                        // sin x, x in radians
	OpCos                        // cos x, x in radians
	OpLog1p                      // ln(1 + x), exact for small x too
	OpExpm1                      // eˣ - 1, exact for small x too
	OpTan                        // tan x, x in radians
	OpAsin                       // arcsin x, NaN unless |x| <= 1
	OpAcos                       // arccos x, NaN unless |x| <= 1
	OpAtan                       // arctan x
	OpSinh                       // sinh x
	OpCosh                       // cosh x
	OpAsinh                      // arsinh x
	OpAcosh                      // arcosh x, NaN below 1
	OpAtanh                      // artanh x, NaN unless |x| <= 1
	OpErfc                       // 1 - erf x, exact for large x too
	OpErfinv                     // the inverse of erf, NaN unless |x| <= 1
	OpExp2                       // 2ˣ
	OpLog2                       // the logarithm to base 2, exact of powers of 2
	OpLog10                      // the logarithm to base 10
	OpLgamma                     // ln|Γ(x)|
	OpDigamma                    // ψ(x), the derivative of ln Γ(x); NaN at negative integers
	OpI0                         // the modified Bessel function of the first kind, order 0
	OpFloor                      // the largest whole number that is not above x; gradient 0, as those of the next three
	OpCeil                       // the smallest whole number that is not below x
	OpRound                      // the nearest whole number, of two as near the even one
	OpTrunc                      // x without its fraction
	OpSoftplus                   // ln(1+eˣ)
	OpLogSigmoid                 // -ln(1+e⁻ˣ)
	OpMish                       // x·tanh(ln(1+eˣ)); NaN at -Inf, and so its gradient, as in PyTorch
	OpHardsigmoid                // min(max(x+3, 0), 6)/6; gradient dy/6 at -3 and 3
	OpHardswish                  // x·min(max(x+3, 0), 6)/6; NaN at -Inf, as in PyTorch
	OpELU                        // x where it is above 0, and eˣ-1 elsewhere
)

// A Unary describes a unary operator.
type Unary struct {
	Name  string
	Reads Reads // what the gradient reads besides dy
	Law   Law   // for the parts of a sum, a maximum or a minimum
	Pole  bool  // the gradient is infinite at some argument

	// Value is the definition and Grad the gradient dy·op'(x) for y = op(x). Integer is
	// the definition for integers, modulo 2⁶⁴; nil if the operator does not take them.
	Value   func(x float64) float64
	Grad    func(dy, x, y float64) float64
	Integer func(x int64) int64

	// Value32 and Grad32 are the CPU's fast forms for float32, within a few units in the
	// last place of the definition. Where there is none the definition is used.
	Value32 func(dst, x []float32)
	Grad32  func(dx, dy, x, y []float32)

	// Value64 and Grad64 are those for float64; Value64 has the bits of the definition.
	Value64 func(dst, x []float64)
	Grad64  func(dx, dy, x, y []float64)
}

// Reads says which argument a gradient reads besides dy.
type Reads uint8

// What a gradient reads.
const (
	ReadsNothing Reads = iota
	ReadsInput         // x
	ReadsOutput        // y
)

var unaryTable = [...]Unary{
	OpNeg: {
		Name: "Neg", Law: Negates,
		Value:   func(x float64) float64 { return -x },
		Grad:    func(dy, x, y float64) float64 { return -dy },
		Integer: func(x int64) int64 { return -x },
		Value32: func(dst, x []float32) { simd.Scale(dst, x, -1) },
		Grad32:  func(dx, dy, x, y []float32) { simd.Scale(dx, dy, -1) },
	},
	OpAbs: {
		Name: "Abs", Reads: ReadsInput,
		Value:   math.Abs,
		Grad:    func(dy, x, y float64) float64 { return dy * sign(x) },
		Integer: func(x int64) int64 { return max(x, -x) },
		Value32: simd.Abs,
		Grad32:  func(dx, dy, x, y []float32) { simd.AbsGrad(dx, x, dy) },
	},
	OpExp: {
		Name: "Exp", Reads: ReadsOutput, Law: Monotone,
		Value:   simd.ExpOf,
		Grad:    func(dy, x, y float64) float64 { return dy * y },
		Value32: simd.Exp,
		Grad32:  func(dx, dy, x, y []float32) { simd.Mul(dx, dy, y) },
		Value64: simd.ExpDouble,
		Grad64:  func(dx, dy, x, y []float64) { simd.Mul(dx, dy, y) },
	},
	OpLog: {
		Name: "Log", Reads: ReadsInput, Law: MonotoneAbove, Pole: true,
		Value:   simd.LogOf,
		Grad:    func(dy, x, y float64) float64 { return dy / x },
		Value32: simd.Log,
		Grad32:  func(dx, dy, x, y []float32) { simd.Div(dx, dy, x) },
		Value64: simd.LogDouble,
		Grad64:  func(dx, dy, x, y []float64) { simd.Div(dx, dy, x) },
	},
	OpSqrt: {
		Name: "Sqrt", Reads: ReadsOutput, Law: MonotoneAbove, Pole: true,
		Value:   math.Sqrt,
		Grad:    func(dy, x, y float64) float64 { return dy / (2 * y) },
		Value32: simd.Sqrt,
		Grad32:  func(dx, dy, x, y []float32) { simd.SqrtGrad(dx, y, dy) },
	},
	OpRsqrt: {
		Name: "Rsqrt", Reads: ReadsOutput, Pole: true,
		Value:   func(x float64) float64 { return 1 / math.Sqrt(x) },
		Grad:    func(dy, x, y float64) float64 { return dy * -0.5 * y * y * y }, // d x^-½ = -½ x^-3/2
		Value32: simd.Rsqrt,
		Grad32:  func(dx, dy, x, y []float32) { simd.RsqrtGrad(dx, y, dy) },
	},
	OpTanh: {
		Name: "Tanh", Reads: ReadsOutput, Law: Monotone,
		Value:   simd.TanhOf,
		Grad:    func(dy, x, y float64) float64 { return dy * (1 - y*y) },
		Value32: simd.Tanh,
		Grad32:  func(dx, dy, x, y []float32) { simd.TanhGrad(dx, y, dy) },
		Value64: simd.TanhDouble,
		Grad64:  func(dx, dy, x, y []float64) { simd.TanhGradDouble(dx, y, dy) },
	},
	OpSigmoid: {
		Name: "Sigmoid", Reads: ReadsOutput, Law: Monotone,
		Value:   simd.SigmoidOf,
		Grad:    func(dy, x, y float64) float64 { return dy * y * (1 - y) },
		Value32: simd.Sigmoid,
		Grad32:  func(dx, dy, x, y []float32) { simd.SigmoidGrad(dx, y, dy) },
		Value64: simd.SigmoidDouble,
		Grad64:  func(dx, dy, x, y []float64) { simd.SigmoidGradDouble(dx, y, dy) },
	},
	OpRelu: {
		Name: "Relu", Reads: ReadsOutput, Law: Monotone,
		Value: func(x float64) float64 {
			if x < 0 {
				return 0
			}
			return x
		},
		Grad: func(dy, x, y float64) float64 {
			if y <= 0 {
				return 0
			}
			return dy
		},
		Integer: func(x int64) int64 { return max(x, 0) },
		Value32: simd.Relu,
		Grad32:  func(dx, dy, x, y []float32) { simd.ReluGrad(dx, y, dy) },
	},
	OpGelu: {
		Name: "Gelu", Reads: ReadsInput,
		Value:   activation.Gelu,
		Grad:    func(dy, x, y float64) float64 { return dy * activation.GeluSlope(x) }, // (x·Φ(x))' = Φ(x) + x·φ(x)
		Value32: simd.Gelu,
		Grad32:  func(dx, dy, x, y []float32) { simd.GeluGrad(dx, x, dy) },
	},
	OpGeluTanh: {
		Name: "GeluTanh", Reads: ReadsInput,
		Value:   activation.GeluTanh,
		Grad:    func(dy, x, y float64) float64 { return dy * activation.GeluTanhSlope(x) },
		Value32: simd.GeluTanh,
		Grad32:  func(dx, dy, x, y []float32) { simd.GeluTanhGrad(dx, x, dy) },
	},
	OpSilu: {
		Name: "Silu", Reads: ReadsInput,
		Value: simd.SiluOf,
		Grad: func(dy, x, y float64) float64 { // (x·s)' = s + x·s·(1-s)
			s := activation.Sigmoid(x)
			return dy * s * (1 + x*(1-s))
		},
		Value32: simd.Silu,
		Grad32:  func(dx, dy, x, y []float32) { simd.SiluGrad(dx, x, dy) },
		Value64: simd.SiluDouble,
		Grad64:  func(dx, dy, x, y []float64) { simd.SiluGradDouble(dx, x, dy) },
	},
	OpSquare: {
		Name: "Square", Reads: ReadsInput,
		Value:   func(x float64) float64 { return x * x },
		Grad:    func(dy, x, y float64) float64 { return dy * 2 * x },
		Integer: func(x int64) int64 { return x * x },
		Value32: func(dst, x []float32) { simd.Mul(dst, x, x) },
		Grad32:  func(dx, dy, x, y []float32) { simd.SquareGrad(dx, x, dy) },
	},
	OpSign: {
		Name:    "Sign",
		Value:   sign,
		Grad:    func(dy, x, y float64) float64 { return 0 },
		Integer: func(x int64) int64 { return min(max(x, -1), 1) },
		Value32: simd.Sign,
		Grad32:  func(dx, dy, x, y []float32) { clear(dx) },
	},
	OpErf: {
		Name: "Erf", Reads: ReadsInput, Law: Monotone,
		Value:   math.Erf,
		Grad:    func(dy, x, y float64) float64 { return dy * 2 / math.Sqrt(math.Pi) * math.Exp(-x*x) },
		Value32: simd.Erf,
		Grad32:  func(dx, dy, x, y []float32) { simd.ErfGrad(dx, x, dy) },
	},
	OpSin: {
		Name: "Sin", Reads: ReadsInput,
		Value:   math.Sin,
		Grad:    func(dy, x, y float64) float64 { return dy * math.Cos(x) },
		Value32: simd.Sin,
		Grad32:  func(dx, dy, x, y []float32) { simd.SinGrad(dx, x, dy) },
	},
	OpCos: {
		Name: "Cos", Reads: ReadsInput,
		Value:   math.Cos,
		Grad:    func(dy, x, y float64) float64 { return -dy * math.Sin(x) },
		Value32: simd.Cos,
		Grad32:  func(dx, dy, x, y []float32) { simd.CosGrad(dx, x, dy) },
	},
	OpLog1p: {
		Name: "Log1p", Reads: ReadsInput, Pole: true,
		Value:   simd.Log1pOf,
		Grad:    func(dy, x, y float64) float64 { return dy / (1 + x) },
		Value32: simd.Log1p,
		Grad32:  func(dx, dy, x, y []float32) { simd.Log1pGrad(dx, x, dy) },
		Value64: simd.Log1pDouble,
	},
	OpExpm1: {
		Name: "Expm1", Reads: ReadsOutput,
		Value:   simd.Expm1Of,
		Grad:    func(dy, x, y float64) float64 { return dy * (y + 1) },
		Value32: simd.Expm1,
		Grad32:  func(dx, dy, x, y []float32) { simd.Expm1Grad(dx, y, dy) },
		Value64: simd.Expm1Double,
	},
	OpTan: {
		Name: "Tan", Reads: ReadsOutput,
		Value:   math.Tan,
		Grad:    func(dy, x, y float64) float64 { return dy * (1 + y*y) },
		Value32: simd.Tan,
		Grad32:  func(dx, dy, x, y []float32) { simd.TanGrad(dx, y, dy) },
	},
	OpAsin: {
		Name: "Asin", Reads: ReadsInput, Pole: true,
		Value:   math.Asin,
		Grad:    func(dy, x, y float64) float64 { return dy / math.Sqrt((1-x)*(1+x)) },
		Value32: simd.Asin,
		Grad32:  func(dx, dy, x, y []float32) { simd.AsinGrad(dx, x, dy) },
	},
	OpAcos: {
		Name: "Acos", Reads: ReadsInput, Pole: true,
		Value:   math.Acos,
		Grad:    func(dy, x, y float64) float64 { return -dy / math.Sqrt((1-x)*(1+x)) },
		Value32: simd.Acos,
		Grad32:  func(dx, dy, x, y []float32) { simd.AcosGrad(dx, x, dy) },
	},
	OpAtan: {
		Name: "Atan", Reads: ReadsInput,
		Value:   math.Atan,
		Grad:    func(dy, x, y float64) float64 { return dy / (1 + x*x) },
		Value32: simd.Atan,
		Grad32:  func(dx, dy, x, y []float32) { simd.AtanGrad(dx, x, dy) },
	},
	OpSinh: {
		Name: "Sinh", Reads: ReadsInput,
		Value:   math.Sinh,
		Grad:    func(dy, x, y float64) float64 { return dy * math.Cosh(x) },
		Value32: simd.Sinh,
		Grad32:  func(dx, dy, x, y []float32) { simd.SinhGrad(dx, x, dy) },
	},
	OpCosh: {
		Name: "Cosh", Reads: ReadsInput,
		Value:   math.Cosh,
		Grad:    func(dy, x, y float64) float64 { return dy * math.Sinh(x) },
		Value32: simd.Cosh,
		Grad32:  func(dx, dy, x, y []float32) { simd.CoshGrad(dx, x, dy) },
	},
	OpAsinh: {
		Name: "Asinh", Reads: ReadsInput,
		Value:   math.Asinh,
		Grad:    func(dy, x, y float64) float64 { return dy / math.Sqrt(x*x+1) },
		Value32: simd.Asinh,
		Grad32:  func(dx, dy, x, y []float32) { simd.AsinhGrad(dx, x, dy) },
	},
	OpAcosh: {
		Name: "Acosh", Reads: ReadsInput, Pole: true,
		Value:   math.Acosh,
		Grad:    func(dy, x, y float64) float64 { return dy / math.Sqrt((x-1)*(x+1)) },
		Value32: simd.Acosh,
		Grad32:  func(dx, dy, x, y []float32) { simd.AcoshGrad(dx, x, dy) },
	},
	OpAtanh: {
		Name: "Atanh", Reads: ReadsInput, Pole: true,
		Value:   math.Atanh,
		Grad:    func(dy, x, y float64) float64 { return dy / ((1 - x) * (1 + x)) },
		Value32: simd.Atanh,
		Grad32:  func(dx, dy, x, y []float32) { simd.AtanhGrad(dx, x, dy) },
	},
	OpErfc: {
		Name: "Erfc", Reads: ReadsInput,
		Value:   math.Erfc,
		Grad:    func(dy, x, y float64) float64 { return -dy * 2 / math.Sqrt(math.Pi) * math.Exp(-x*x) },
		Value32: simd.Erfc,
		Grad32:  func(dx, dy, x, y []float32) { simd.ErfcGrad(dx, x, dy) },
	},
	OpErfinv: {
		Name: "Erfinv", Reads: ReadsOutput, Pole: true,
		Value: math.Erfinv,
		Grad:  func(dy, x, y float64) float64 { return dy * math.Sqrt(math.Pi) / 2 * math.Exp(y*y) },
	},
	OpExp2: {
		Name: "Exp2", Reads: ReadsOutput,
		Value:   math.Exp2,
		Grad:    func(dy, x, y float64) float64 { return dy * y * math.Ln2 },
		Value32: simd.Exp2,
		Grad32:  func(dx, dy, x, y []float32) { simd.Exp2Grad(dx, y, dy) },
	},
	OpLog2: {
		Name: "Log2", Reads: ReadsInput, Pole: true,
		Value:   math.Log2,
		Grad:    func(dy, x, y float64) float64 { return dy / (x * math.Ln2) },
		Value32: simd.Log2,
		Grad32:  func(dx, dy, x, y []float32) { simd.Log2Grad(dx, x, dy) },
	},
	OpLog10: {
		Name: "Log10", Reads: ReadsInput, Pole: true,
		Value:   math.Log10,
		Grad:    func(dy, x, y float64) float64 { return dy / (x * math.Ln10) },
		Value32: simd.Log10,
		Grad32:  func(dx, dy, x, y []float32) { simd.Log10Grad(dx, x, dy) },
	},
	OpLgamma: {
		Name: "Lgamma", Reads: ReadsInput, Pole: true,
		Value: lgamma,
		Grad:  func(dy, x, y float64) float64 { return dy * digamma(x) },
	},
	OpDigamma: {
		Name: "Digamma", Reads: ReadsInput, Pole: true,
		Value: digamma,
		Grad:  func(dy, x, y float64) float64 { return dy * trigamma(x) },
	},
	OpI0: {
		Name: "I0", Reads: ReadsInput,
		Value: bessel0,
		Grad:  func(dy, x, y float64) float64 { return dy * bessel1(x) },
	},
	OpFloor: {
		Name: "Floor", Law: Monotone,
		Value:   math.Floor,
		Grad:    func(dy, x, y float64) float64 { return 0 },
		Value32: simd.Floor,
		Grad32:  func(dx, dy, x, y []float32) { clear(dx) },
	},
	OpCeil: {
		Name: "Ceil", Law: Monotone,
		Value:   math.Ceil,
		Grad:    func(dy, x, y float64) float64 { return 0 },
		Value32: simd.Ceil,
		Grad32:  func(dx, dy, x, y []float32) { clear(dx) },
	},
	OpRound: {
		Name: "Round", Law: Monotone,
		Value:   math.RoundToEven,
		Grad:    func(dy, x, y float64) float64 { return 0 },
		Value32: simd.Round,
		Grad32:  func(dx, dy, x, y []float32) { clear(dx) },
	},
	OpTrunc: {
		Name: "Trunc", Law: Monotone,
		Value:   math.Trunc,
		Grad:    func(dy, x, y float64) float64 { return 0 },
		Value32: simd.Trunc,
		Grad32:  func(dx, dy, x, y []float32) { clear(dx) },
	},
	OpSoftplus: {
		Name: "Softplus", Reads: ReadsInput, Law: Monotone,
		Value:   simd.SoftplusOf,
		Grad:    func(dy, x, y float64) float64 { return dy * activation.Sigmoid(x) },
		Value32: simd.Softplus,
		Grad32:  func(dx, dy, x, y []float32) { simd.SoftplusGrad(dx, x, dy) },
		Value64: simd.SoftplusDouble,
		Grad64:  func(dx, dy, x, y []float64) { simd.SoftplusGradDouble(dx, x, dy) },
	},
	OpLogSigmoid: {
		Name: "LogSigmoid", Reads: ReadsInput, Law: Monotone,
		Value:   simd.LogSigmoidOf,
		Grad:    func(dy, x, y float64) float64 { return dy * activation.Sigmoid(-x) },
		Value32: simd.LogSigmoid,
		Grad32:  func(dx, dy, x, y []float32) { simd.LogSigmoidGrad(dx, x, dy) },
		Value64: simd.LogSigmoidDouble,
	},
	OpMish: {
		Name: "Mish", Reads: ReadsInput,
		Value:   activation.Mish,
		Grad:    func(dy, x, y float64) float64 { return dy * activation.MishSlope(x) },
		Value32: simd.Mish,
		Grad32:  func(dx, dy, x, y []float32) { simd.MishGrad(dx, x, dy) },
	},
	OpHardsigmoid: {
		Name: "Hardsigmoid", Reads: ReadsInput, Law: Monotone,
		Value:   activation.Hardsigmoid,
		Grad:    func(dy, x, y float64) float64 { return dy * activation.HardsigmoidSlope(x) },
		Value32: simd.Hardsigmoid,
		Grad32:  func(dx, dy, x, y []float32) { simd.HardsigmoidGrad(dx, x, dy) },
	},
	OpHardswish: {
		Name: "Hardswish", Reads: ReadsInput,
		Value:   func(x float64) float64 { return x * activation.Hardsigmoid(x) },
		Grad:    func(dy, x, y float64) float64 { return dy * activation.HardswishSlope(x) },
		Value32: simd.Hardswish,
		Grad32:  func(dx, dy, x, y []float32) { simd.HardswishGrad(dx, x, dy) },
	},
	OpELU: {
		Name: "ELU", Reads: ReadsInput, Law: Monotone,
		Value:   activation.ELU,
		Grad:    func(dy, x, y float64) float64 { return dy * activation.ELUSlope(x) },
		Value32: simd.ELU,
		Grad32:  func(dx, dy, x, y []float32) { simd.ELUGrad(dx, x, dy) },
	},
}

// sign returns the sign of x; of zero and NaN x itself.
func sign(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return x
}

// UnaryOps returns all unary operators.
func UnaryOps() []UnaryOp { return allOps[UnaryOp](len(unaryTable)) }

// Row returns the description of op. It panics if op is none.
func (op UnaryOp) Row() *Unary {
	if int(op) >= len(unaryTable) {
		Missing("the table of unary operators", op)
	}
	return &unaryTable[op]
}

// String returns the name of the function, "Gelu".
func (op UnaryOp) String() string {
	if int(op) >= len(unaryTable) {
		return unknown(op)
	}
	return unaryTable[op].Name
}

// NeedsInput reports whether the gradient reads x; a tape need not keep it otherwise.
func (op UnaryOp) NeedsInput() bool { return op.Row().Reads == ReadsInput }

// NeedsOutput reports whether the gradient reads y.
func (op UnaryOp) NeedsOutput() bool { return op.Row().Reads == ReadsOutput }
