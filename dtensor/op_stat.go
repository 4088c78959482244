package dtensor

import (
	"fmt"
	"math"

	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// The statistics are made of reductions and element-wise operators, and have
// their layouts: a reduced dimension that is sharded costs one small
// all-reduce for each reduction, and the elements stay where they are. They
// are right for uneven and empty shards, since counts are those of the global
// tensor.

// Var returns the variance of the elements of dims, all for none: the sum of
// squared distances from the mean over the number of elements less correction
// (1 for an unbiased estimate).
func (x *Tensor) Var(dims []int, correction float64, keepdim bool) *Tensor {
	defer x.spec.mesh.Span("Var").End()
	return x.variance("Var", dims, correction, keepdim)
}

// variance is Var of an operator op.
func (x *Tensor) variance(op string, dims []int, correction float64, keepdim bool) *Tensor {
	if !x.DType().Float() {
		refuse(op, "the input holds "+x.DType().String(), "Cast it to a floating-point type", operand("input", x))
	}
	n := float64(x.count(op, dims))
	wide := x.widen() // in a narrow type squares overflow, or vanish
	return wide.Sub(wide.Mean(dims, true)).Square().Sum(dims, keepdim).divide(max(n-correction, 0)).Cast(x.DType())
}

// Std returns the standard deviation, the square root of Var. Its gradient where it is 0 is 0.
func (x *Tensor) Std(dims []int, correction float64, keepdim bool) *Tensor {
	return x.inWide("Std", func(x *Tensor) *Tensor {
		square := x.variance("Std", dims, correction, keepdim).Reduced()
		zero := square.CompareScalar(kernel.OpEq, 0)
		return square.MaskedFill(zero, 1).Sqrt().MaskedFill(zero, 0)
	})
}

// LogSumExp returns ln Σ eˣ over dims, all for none, without overflow.
func (x *Tensor) LogSumExp(dims []int, keepdim bool) *Tensor {
	defer x.spec.mesh.Span("LogSumExp").End()
	x.dims("LogSumExp", dims)
	if x.DType().Narrow() {
		return x.widen().LogSumExp(dims, keepdim).Cast(x.DType())
	}
	top := x.Detach().reduce(kernel.OpAmax, dims, true).Reduced()
	// Where all is -Inf, or an element is Inf, the difference would be NaN.
	top = top.MaskedFill(top.Abs().CompareScalar(kernel.OpEq, math.Inf(1)), 0)
	return x.Sub(top).Exp().Sum(dims, true).Log().Add(top).Reshape(x.reducedShape(dims, keepdim)...)
}

// LogAddExp returns ln(eᵃ + eᵇ), element by element, without overflow. The layouts are those of Maximum and Sub.
func (a *Tensor) LogAddExp(b *Tensor) *Tensor {
	sameMesh("LogAddExp", a, b)
	sameType("LogAddExp", a, b)
	return a.inWide("LogAddExp", func(a *Tensor) *Tensor {
		b := b.widen()
		equal := a.compare("LogAddExp", kernel.OpEq, b)
		apart := a.Sub(b).MaskedFill(equal, 0)            // of infinities it would be NaN
		return a.Maximum(b).Sub(apart.Abs().LogSigmoid()) // less -ln(1 + e to the -|a-b|)
	})
}

// Norm returns (Σ |x|ᵖ)^(1/p) over dims, all for none. p may be +Inf or -Inf, for the
// largest and the smallest |x|, 0, for how many x are not 0, and below 0, where one x of 0 makes the norm 0.
// Its gradient where the norm is 0 is 0; for a p of 0 it has none. It throws a *LayoutError for a p that is NaN.
func (x *Tensor) Norm(p float64, dims []int, keepdim bool) *Tensor {
	defer x.spec.mesh.Span("Norm").End()
	if math.IsNaN(p) {
		refuse("Norm", "p is NaN", "use a number, as 1, 2 or +Inf", operand("input", x))
	}
	x.dims("Norm", dims)
	if x.DType().Narrow() {
		return x.widen().Norm(p, dims, keepdim).Cast(x.DType())
	}
	in := x.Detach()
	var kept *Tensor
	switch {
	case math.IsInf(p, 1):
		return x.Abs().Amax(dims, keepdim)
	case math.IsInf(p, -1):
		return x.Abs().Amin(dims, keepdim)
	case p == 0:
		return in.CompareScalar(kernel.OpNe, 0).Cast(x.DType()).Sum(dims, keepdim)
	case p == 1:
		return x.Abs().Sum(dims, keepdim)
	case p == 2:
		kept = in.sumSquares(dims).Sqrt()
	default:
		kept = in.Abs().PowScalar(p).Sum(dims, true).PowScalar(1 / p)
	}
	out := kept.Reshape(x.reducedShape(dims, keepdim)...)
	if x.tracked() {
		out = out.Detach()
		out.recordTwice("Norm", func(gy *Tensor) { // dy·x·|x|ᵖ⁻² / normᵖ⁻¹
			in, kept := in, kept
			if gy.again() {
				in, kept = x, out.Reshape(kept.Shape()...)
			}
			zero := kept.CompareScalar(kernel.OpEq, 0)
			unit := in.Div(kept.MaskedFill(zero, 1))
			if p != 2 {
				small := in.CompareScalar(kernel.OpEq, 0)
				unit = unit.Mul(in.Div(kept.MaskedFill(zero, 1)).Abs().MaskedFill(small, 1).PowScalar(p - 2))
			}
			if p < 0 {
				unit = unit.MaskedFill(zero, 0) // not all x are 0 where the norm is
			}
			x.accumulate(gy.Reshape(kept.Shape()...).Mul(unit))
		})
	}
	return out
}

// sumSquares returns Σ x² over dims, which stay with size 1. It is not recorded.
func (x *Tensor) sumSquares(dims []int) *Tensor {
	if x.spec.mesh.eng.same {
		return x.Square().Sum(dims, true)
	}
	return x.Reduced().reduceBy(kernel.OpSum, dims, true, tensor.SquareSums)
}

// Any reports for a Bool tensor whether an element of dims is true.
//
//	x                       result
//	R                       R
//	S(i), i not reduced     S(i)
//	S(i), i reduced         P(max)   P(min) for All
func (x *Tensor) Any(dims []int, keepdim bool) *Tensor {
	x.wantBool("Any", dims)
	return x.reduce(kernel.OpAmax, dims, keepdim)
}

// All reports for a Bool tensor whether all elements of dims are true; see Any.
func (x *Tensor) All(dims []int, keepdim bool) *Tensor {
	x.wantBool("All", dims)
	return x.reduce(kernel.OpAmin, dims, keepdim)
}

func (x *Tensor) wantBool(op string, dims []int) {
	x.dims(op, dims)
	if x.DType() != tensor.Bool {
		refuse(op, "the input holds "+x.DType().String(), "compare it first", operand("input", x))
	}
}

// OneHot returns a tensor with one more dimension, of size classes, that is 1
// where its position is t's element and 0 elsewhere. t holds integers from 0 to classes-1; another
// throws a *tensor.IndexError, on every rank if t is replicated.
//
//	t       result
//	S(i)    S(i)
//	R       R
func (t *Tensor) OneHot(classes int, dt tensor.DType) *Tensor {
	defer t.spec.mesh.Span("OneHot").End()
	if !t.DType().Int() {
		refuse("OneHot", "the input holds "+t.DType().String(), "give integers", operand("input", t))
	}
	if classes < 0 {
		refuse("OneHot", fmt.Sprintf("the number of classes is %d", classes), "give one that is not negative", operand("input", t))
	}
	m := t.spec.mesh
	if t = t.Reduced(); !m.outside() {
		t.checkRange("OneHot", classes)
	}
	positions := m.constant("OneHot", tensor.Arange(m.eng.dev, t.DType(), 0, classes))
	return t.Unsqueeze(-1).Compare(kernel.OpEq, positions).Cast(dt)
}
