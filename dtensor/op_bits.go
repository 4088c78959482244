package dtensor

import (
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// The operators on bits take integers of one type, and broadcast. A negative number has the bits of two's complement. They have
// no gradients. What is Partial is reduced first; else the layouts are those of Add.

// BitwiseNot returns the bits that x does not have, -x-1; of Bool it is LogicalNot.
func (x *Tensor) BitwiseNot() *Tensor {
	switch dt := x.DType(); {
	case dt == tensor.Bool:
		return x.LogicalNot()
	case !dt.Int():
		refuse("BitwiseNot", "the input holds "+dt.String(), "Cast it to an integer type", operand("input", x))
	}
	return x.Neg().AddScalar(-1)
}

// BitwiseAnd returns the bits that both a and b have; of Bool it is LogicalAnd.
func (a *Tensor) BitwiseAnd(b *Tensor) *Tensor {
	return bitwise(kernel.OpBitwiseAnd, a, b, (*Tensor).LogicalAnd)
}

// BitwiseOr returns the bits that a or b has; of Bool it is LogicalOr.
func (a *Tensor) BitwiseOr(b *Tensor) *Tensor {
	return bitwise(kernel.OpBitwiseOr, a, b, (*Tensor).LogicalOr)
}

// BitwiseXor returns the bits that one of a and b has and the other does not; of Bool it is LogicalXor.
func (a *Tensor) BitwiseXor(b *Tensor) *Tensor {
	return bitwise(kernel.OpBitwiseXor, a, b, (*Tensor).LogicalXor)
}

// bitwise returns op of integers and of Bool what truths does.
func bitwise(op kernel.BinaryOp, a, b *Tensor, truths func(a, b *Tensor) *Tensor) *Tensor {
	sameMesh(op.String(), a, b)
	sameType(op.String(), a, b)
	if a.DType() == tensor.Bool {
		return truths(a, b)
	}
	return binary(op, a, b)
}

// ShiftLeft returns a with its bits b places higher, a·2ᵇ; 0 where b is negative, or no less than the number of bits.
func (a *Tensor) ShiftLeft(b *Tensor) *Tensor { return binary(kernel.OpShiftLeft, a, b) }

// ShiftRight returns a with its bits b places lower, ⌊a/2ᵇ⌋; where b is negative, or no less than the number of bits, 0, or -1
// of a negative a.
func (a *Tensor) ShiftRight(b *Tensor) *Tensor { return binary(kernel.OpShiftRight, a, b) }
