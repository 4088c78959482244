package tensor

import (
	"math"
	"runtime"
	"slices"
)

// A RowOp is a number computed from a row.
type RowOp uint8

// The row functions. Their sums are taken in an order that depends on the length
// alone.
const (
	OpLogSumExp RowOp = iota // ln Σ exp(x); -Inf for no elements, +Inf where one is
	OpSquareDev              // Σ (x - mean)²
	OpNorm                   // (Σ |x|ᵖ)^(1/p); max |x| for p = +Inf, 0 for no elements
	OpPowSum                 // Σ |x|ᵖ; max |x| for p = +Inf: what OpNorm is made of, for a part of a row
	rowOps
)

var rowNames = [rowOps]string{"LogSumExp", "SquareDev", "Norm", "PowSum"}

// String returns the name, "LogSumExp".
func (op RowOp) String() string { return rowNames[op] }

// rowStat computes op over dims on behalf of name; p is for the norms.
func rowStat(name string, op RowOp, x *Tensor, p float64, dims []int, keepdim bool) *Tensor {
	wantFloatOrHalf(name, x)
	if x.dtype == BFloat16 {
		return throughWide(func(x []*Tensor) *Tensor { return rowStat(name, op, x[0], p, dims, keepdim) }, x)
	}
	mask := x.dimMask(name, dims)
	n := x.count(mask)
	shape := x.keepShape(mask)
	y := alloc(name, x.dev, x.dtype, shape)
	rows := x.lastDims(mask)
	x.dev.RowStat(op, x.dtype, y.addr, rows.ptr(name), y.numel, n, p)
	runtime.KeepAlive(rows)
	return y.dropDims(mask, keepdim)
}

// lastDims returns x with the dimensions in mask moved behind the others.
func (t *Tensor) lastDims(mask int) *Tensor {
	var order [MaxDims]int
	n, moved := 0, false
	for pass := range 2 {
		for d := range t.NDim() {
			if mask>>d&1 == pass {
				order[n] = d
				moved = moved || n != d && t.dims[d] != 1
				n++
			}
		}
	}
	if !moved {
		return t
	}
	return Permute(t, order[:n]...)
}

// Var returns the variance of the elements of dims: the sum of the squared
// distances from their mean, over their number less correction (1 is the unbiased
// estimate). It is NaN for too few elements.
func Var(x *Tensor, dims []int, correction float64, keepdim bool) *Tensor {
	if x.dtype == BFloat16 {
		return throughWide(func(x []*Tensor) *Tensor { return Var(x[0], dims, correction, keepdim) }, x)
	}
	y := rowStat("Var", OpSquareDev, x, 0, dims, keepdim)
	n := max(float64(x.count(x.dimMask("Var", dims)))-correction, 0)
	y.dev.BinaryScalar(OpDiv, y.dtype, y.addr, y.addr, n, false, y.numel)
	return y
}

// VarGrad returns the gradient of Var: dy·2·(x - mean)/(n - correction).
func VarGrad(dy, x *Tensor, dims []int, correction float64, keepdim bool) *Tensor {
	if x.dtype == BFloat16 {
		return narrowed(VarGrad(Widen(dy), Widen(x), dims, correction, keepdim))
	}
	kept := dy.restoreDims("VarGrad", x.Shape(), dims, keepdim)
	n := max(float64(x.count(x.dimMask("VarGrad", dims)))-correction, 0)
	return Mul(Sub(x, Mean(x, dims, true)), MulScalar(kept, 2/n))
}

// LogSumExp returns ln Σ exp(x) over dims.
func LogSumExp(x *Tensor, dims []int, keepdim bool) *Tensor {
	return rowStat("LogSumExp", OpLogSumExp, x, 0, dims, keepdim)
}

// LogSumExpGrad returns the gradient of LogSumExp(x, dims, keepdim) = y:
// dy·exp(x - y).
func LogSumExpGrad(dy, x, y *Tensor, dims []int, keepdim bool) *Tensor {
	if x.dtype == BFloat16 {
		return narrowed(LogSumExpGrad(Widen(dy), Widen(x), Widen(y), dims, keepdim))
	}
	kept := dy.restoreDims("LogSumExpGrad", x.Shape(), dims, keepdim)
	return Mul(Exp(Sub(x, y.Reshape(kept.Shape()...))), kept)
}

// Norm returns (Σ |x|ᵖ)^(1/p) over dims, p > 0; max |x| for p = +Inf.
func Norm(x *Tensor, p float64, dims []int, keepdim bool) *Tensor {
	wantPower("Norm", p)
	return rowStat("Norm", OpNorm, x, p, dims, keepdim)
}

// PowSum returns Σ |x|ᵖ over dims, p > 0; max |x| for p = +Inf. Parts of a row
// held apart combine by addition, or by maximum.
func PowSum(x *Tensor, p float64, dims []int, keepdim bool) *Tensor {
	wantPower("PowSum", p)
	return rowStat("PowSum", OpPowSum, x, p, dims, keepdim)
}

func wantPower(op string, p float64) {
	if !(p > 0) {
		throwShape(op, "p = %g: want more than 0", p)
	}
}

// NormGrad returns the gradient of Norm(x, p, dims, keepdim) = y, 0 where y is 0:
// dy·sign(x)·(|x|/y)ᵖ⁻¹; for p = +Inf, dy·sign(x) shared among the largest.
func NormGrad(dy, x, y *Tensor, p float64, dims []int, keepdim bool) *Tensor {
	if x.dtype == BFloat16 {
		return narrowed(NormGrad(Widen(dy), Widen(x), Widen(y), p, dims, keepdim))
	}
	kept := dy.restoreDims("NormGrad", x.Shape(), dims, keepdim)
	y = y.Reshape(kept.Shape()...)
	if math.IsInf(p, 1) {
		return Mul(Sign(x), AmaxGrad(kept, Abs(x), y, dims, true))
	}
	zero := CompareScalar(OpEq, y, 0)
	ratio := Div(x, MaskedFill(y, zero, 1))
	switch p {
	case 2:
	case 1:
		ratio = Sign(x)
	default:
		// At x = 0 the power p-1 < 0 has no limit; the gradient there is taken as 0.
		at0 := CompareScalar(OpEq, x, 0)
		power := BinaryScalar(OpPow, MaskedFill(Abs(ratio), at0, 1), p-1)
		ratio = Mul(Sign(x), power)
	}
	return Mul(ratio, MaskedFill(kept, zero, 0))
}

// Argmax returns the position along dim of the largest element, Int64: the first
// of equals; NaN is larger than any number. It throws a *ShapeError if dim has no
// elements.
func Argmax(x *Tensor, dim int, keepdim bool) *Tensor {
	_, index := TopK(x, 1, dim)
	if keepdim {
		return index
	}
	return Squeeze(index, dim)
}

// TopK returns the k largest elements along dim, largest first, and their
// positions, Int64. Of equals the one with the smaller position comes first; NaN
// is larger than any number. It throws a *ShapeError if dim has fewer than k.
func TopK(x *Tensor, k, dim int) (values, index *Tensor) {
	wantComparable("TopK", x)
	dim = x.axis("TopK", dim)
	if k < 0 || k > x.dims[dim] {
		throwShape("TopK", "x %v: dimension %d does not have %d elements", x.brief(), dim, k)
	}
	if dim != x.NDim()-1 {
		values, index = TopK(Transpose(x, dim, -1), k, -1)
		return Transpose(values, dim, -1), Transpose(index, dim, -1)
	}
	shape := slices.Clone(x.Shape())
	shape[dim] = k
	values = alloc("TopK", x.dev, x.dtype, shape)
	index = alloc("TopK", x.dev, Int64, shape)
	n := x.dims[dim]
	x.dev.TopK(x.dtype, values.addr, index.addr, x.ptr("TopK"), x.numel/max(n, 1), n, k)
	runtime.KeepAlive(x)
	return values, index
}

// TopKGrad returns the gradient of the values of TopK(x, k, dim) for x of the
// given shape.
func TopKGrad(dvalues, index *Tensor, dim int, shape ...int) *Tensor {
	if dvalues.dtype == BFloat16 {
		return Cast(GatherGrad(Cast(dvalues, Float32), dim, index, shape...), BFloat16)
	}
	return GatherGrad(dvalues, dim, index, shape...)
}

// Cumsum returns the sums of the first 1, 2, … elements along dim, added up in
// float64 for float32. Integers and Bool become Int64.
func Cumsum(x *Tensor, dim int) *Tensor { return cumsum("Cumsum", x, dim, false) }

// CumsumGrad returns the gradient of Cumsum(x, dim): the sums of the last
// elements of dy.
func CumsumGrad(dy *Tensor, dim int) *Tensor { return cumsum("CumsumGrad", dy, dim, true) }

func cumsum(op string, x *Tensor, dim int, reverse bool) *Tensor {
	if x.dtype != Float32 && x.dtype != Float64 {
		wantComparable(op, x)
		if x.dtype == BFloat16 {
			return throughWide(func(x []*Tensor) *Tensor { return cumsum(op, x[0], dim, reverse) }, x)
		}
		x = Cast(x, Int64)
	}
	dim = x.axis(op, dim)
	y := allocLike(op, x)
	outer, inner := x.around(dim)
	x.dev.Cumsum(x.dtype, reverse, y.addr, x.ptr(op), outer, x.dims[dim], inner)
	runtime.KeepAlive(x)
	return y
}
