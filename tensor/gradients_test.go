package tensor

import (
	"math"
	"slices"

	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Gradients made of operators, as the tests check them against differences. Package
// dtensor has its own, for every layout.

// AmaxGrad returns the gradient of Amax or Amin(x, dims, keepdim) = y: dy shared
// equally among the elements of x that equal the result.
func AmaxGrad(dy, x, y *Tensor, dims []int, keepdim bool) *Tensor {
	if x.dtype.Narrow() {
		return castLike(dy, AmaxGrad(Widen(dy), Widen(x), Widen(y), dims, keepdim))
	}
	kept := dy.restoreDims("AmaxGrad", x.Shape(), dims, keepdim)
	hit := Cast(Compare(kernel.OpEq, x, y.Reshape(kept.Shape()...)), x.dtype)
	return Mul(hit, Div(kept, Sum(hit, dims, true)))
}

// BinaryGrad returns the gradients of Binary(op, a, b), in the shapes of a and b.
// Where Maximum and Minimum have equal arguments each gets half, where one is NaN
// each gets all. wantA and wantB say which are wanted; the other is nil.
func BinaryGrad(op kernel.BinaryOp, dy, a, b *Tensor, wantA, wantB bool) (da, db *Tensor) {
	wantFloat(op.String()+"Grad", dy)
	if dy.dtype.Narrow() {
		da, db = BinaryGrad(op, Widen(dy), Widen(a), Widen(b), wantA, wantB)
		return castLike(dy, da), castLike(dy, db)
	}
	switch op {
	case kernel.OpAdd:
		da, db = pick(wantA, dy), pick(wantB, dy)
	case kernel.OpSub:
		da = pick(wantA, dy)
		if wantB {
			db = Neg(SumTo(dy, b.Shape()...))
		}
	case kernel.OpMul:
		if wantA {
			da = Mul(dy, b)
		}
		if wantB {
			db = Mul(dy, a)
		}
	case kernel.OpDiv:
		q := Div(dy, b)
		da = pick(wantA, q)
		if wantB { // -dy·a/b²
			db = Neg(Div(Mul(q, a), b))
		}
	case kernel.OpMaximum, kernel.OpMinimum:
		loses := kernel.OpLt
		if op == kernel.OpMinimum {
			loses = kernel.OpGt
		}
		share := Mul(dy, AddScalar(MulScalar(Cast(Compare(kernel.OpEq, a, b), dy.dtype), -0.5), 1))
		if wantA {
			da = MaskedFill(share, Compare(loses, a, b), 0)
		}
		if wantB {
			db = MaskedFill(share, Compare(loses, b, a), 0)
		}
	case kernel.OpRemainder: // db = -dy·⌊a/b⌋
		da = pick(wantA, dy)
		if wantB {
			q := ToSlice[float64](Cast(Div(a, b), Float64))
			for i, v := range q {
				q[i] = -math.Floor(v)
			}
			db = Mul(dy, Cast(FromSlice(a.dev, q, dy.Shape()...), dy.dtype))
		}
	case kernel.OpFmod: // db = -dy·trunc(a/b)
		da = pick(wantA, dy)
		if wantB {
			db = Neg(Mul(dy, Div(Sub(a, Binary(op, a, b)), b)))
		}
	case kernel.OpFloorDivide:
		da, db = pick(wantA, MulScalar(dy, 0)), pick(wantB, MulScalar(dy, 0))
	case kernel.OpAtan2: // dy·b and -dy·a over a² + b²
		q := Div(dy, Add(Mul(a, a), Mul(b, b)))
		da = pick(wantA, Mul(q, b))
		if wantB {
			db = Neg(Mul(q, a))
		}
	case kernel.OpPow:
		if wantA { // b·aᵇ⁻¹; 0 where b is 0
			p := Mul(b, Pow(a, BinaryScalar(kernel.OpSub, b, 1)))
			da = Mul(dy, Where(CompareScalar(kernel.OpEq, b, 0), ZerosLike(p), p))
		}
		if wantB { // aᵇ·ln a; 0 where a is 0 and b not negative
			p := Mul(Pow(a, b), Log(a))
			none := Where(CompareScalar(kernel.OpLt, b, 0), Full(a.dev, Bool, 0), CompareScalar(kernel.OpEq, a, 0))
			db = Mul(dy, Where(none, Full(p.dev, p.dtype, 0), p))
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

// LogSumExpGrad returns the gradient of LogSumExp(x, dims, keepdim) = y:
// dy·exp(x - y).
func LogSumExpGrad(dy, x, y *Tensor, dims []int, keepdim bool) *Tensor {
	if x.dtype.Narrow() {
		return castLike(dy, LogSumExpGrad(Widen(dy), Widen(x), Widen(y), dims, keepdim))
	}
	kept := dy.restoreDims("LogSumExpGrad", x.Shape(), dims, keepdim)
	return Mul(Exp(Sub(x, y.Reshape(kept.Shape()...))), kept)
}

// MeanGrad returns the gradient of Mean(x, dims, keepdim) for x of the given
// shape: dy repeated, over the number of elements.
func MeanGrad(dy *Tensor, shape, dims []int, keepdim bool) *Tensor {
	kept := dy.restoreDims("MeanGrad", shape, dims, keepdim)
	n := 1.0
	for d := range shape {
		if kept.dims[d] == 1 {
			n *= float64(shape[d])
		}
	}
	return Expand(BinaryScalar(kernel.OpDiv, kept, n), shape...)
}

// NormGrad returns the gradient of Norm(x, p, dims, keepdim) = y, 0 where y is 0:
// dy·sign(x)·(|x|/y)ᵖ⁻¹; for p = +Inf, dy·sign(x) shared among the largest.
func NormGrad(dy, x, y *Tensor, p float64, dims []int, keepdim bool) *Tensor {
	if x.dtype.Narrow() {
		return castLike(dy, NormGrad(Widen(dy), Widen(x), Widen(y), p, dims, keepdim))
	}
	kept := dy.restoreDims("NormGrad", x.Shape(), dims, keepdim)
	y = y.Reshape(kept.Shape()...)
	if math.IsInf(p, 1) {
		return Mul(Sign(x), AmaxGrad(kept, Abs(x), y, dims, true))
	}
	zero := CompareScalar(kernel.OpEq, y, 0)
	ratio := Div(x, MaskedFill(y, zero, 1))
	switch p {
	case 2:
	case 1:
		ratio = Sign(x)
	default:
		// At x = 0 the power p-1 < 0 has no limit; the gradient there is taken as 0.
		at0 := CompareScalar(kernel.OpEq, x, 0)
		power := BinaryScalar(kernel.OpPow, MaskedFill(Abs(ratio), at0, 1), p-1)
		ratio = Mul(Sign(x), power)
	}
	return Mul(ratio, MaskedFill(kept, zero, 0))
}

// ProdGrad returns the gradient of Prod(x, dims, keepdim): dy times the product
// of the other elements, right where elements are zero too.
func ProdGrad(dy, x *Tensor, dims []int, keepdim bool) *Tensor {
	if x.dtype.Narrow() {
		return castLike(dy, ProdGrad(Widen(dy), Widen(x), dims, keepdim))
	}
	kept := dy.restoreDims("ProdGrad", x.Shape(), dims, keepdim)
	zero := CompareScalar(kernel.OpEq, x, 0)
	zeros := Sum(Cast(zero, x.dtype), dims, true)
	rest := Prod(MaskedFill(x, zero, 1), dims, true) // the product of what is not zero
	none := Div(rest, MaskedFill(x, zero, 1))
	some := Where(CompareScalar(kernel.OpEq, zeros, 0), none, Zeros(x.dev, x.dtype))
	one := Where(CompareScalar(kernel.OpEq, zeros, 1), rest, Zeros(x.dev, x.dtype))
	return Mul(kept, Where(zero, one, some))
}

// SumGrad returns the gradient of Sum(x, dims, keepdim) for x of the given shape:
// dy repeated.
func SumGrad(dy *Tensor, shape, dims []int, keepdim bool) *Tensor {
	return Expand(dy.restoreDims("SumGrad", shape, dims, keepdim), shape...)
}

// VarGrad returns the gradient of Var: dy·2·(x - mean)/(n - correction).
func VarGrad(dy, x *Tensor, dims []int, correction float64, keepdim bool) *Tensor {
	if x.dtype.Narrow() {
		return castLike(dy, VarGrad(Widen(dy), Widen(x), dims, correction, keepdim))
	}
	kept := dy.restoreDims("VarGrad", x.Shape(), dims, keepdim)
	n := max(float64(x.count(x.dimMask("VarGrad", dims)))-correction, 0)
	return Mul(Sub(x, Mean(x, dims, true)), MulScalar(kept, 2/n))
}

// WhereGrad returns the gradients of Where in the shapes of a and b.
func WhereGrad(dy, cond *Tensor, aShape, bShape []int) (da, db *Tensor) {
	zero := Zeros(dy.dev, dy.dtype)
	da = SumTo(Where(cond, dy, zero), aShape...)
	db = SumTo(Where(cond, zero, dy), bShape...)
	return da, db
}

// castLike returns x, which may be nil, as the type of like.
func castLike(like, x *Tensor) *Tensor {
	if x == nil {
		return nil
	}
	return Cast(x, like.dtype)
}

func pick(want bool, t *Tensor) *Tensor {
	if want {
		return t
	}
	return nil
}

// restoreDims returns dy with the dimensions that a reduction of a tensor of the
// given shape over dims removed, as size 1.
func (t *Tensor) restoreDims(op string, shape, dims []int, keepdim bool) *Tensor {
	if len(shape) > kernel.MaxDims {
		throwShape(op, "%d dimensions: at most %d are supported", len(shape), kernel.MaxDims)
	}
	like := &Tensor{dtype: t.dtype, ndim: uint8(len(shape))}
	copy(like.dims[:], shape)
	kept := like.keepShape(like.dimMask(op, dims))
	if keepdim && !slices.Equal(kept, t.Shape()) {
		throwShape(op, "gradient %v does not have the shape %v", t.brief(), kept)
	}
	return t.Reshape(kept...)
}

// IndexSelectGrad returns the gradient of IndexSelect(x, dim, index) for x of the given shape.
func IndexSelectGrad(dy *Tensor, dim int, index *Tensor, shape ...int) *Tensor {
	dx := Zeros(dy.dev, dy.dtype, shape...)
	IndexAddTo(dx, dim, index, dy)
	return dx
}

// GatherGrad returns the gradient of Gather(x, dim, index), and of the values of TopK with its
// index, for x of the given shape.
func GatherGrad(dy *Tensor, dim int, index *Tensor, shape ...int) *Tensor {
	dx := Zeros(dy.dev, dy.dtype, shape...)
	ScatterAddTo(dx, dim, index, dy)
	return dx
}

// NarrowGrad returns the gradient of Narrow: zeros of the given shape with dy at start of
// dimension dim.
func NarrowGrad(dy *Tensor, dim, start int, shape ...int) *Tensor {
	dx := Zeros(dy.dev, dy.dtype, shape...)
	off := make([]int, len(shape))
	off[dim] = start
	CopyBox(dx, off, dy, make([]int, len(shape)), dy.Shape())
	return dx
}
