package dtensor

import (
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// The logical operators take elements of any type, of which 0 is false and anything else,
// NaN too, is true. Shapes broadcast, and the result is Bool. They have no gradients. The
// layouts are those of Compare.

// LogicalNot returns whether x is false.
func (x *Tensor) LogicalNot() *Tensor { return x.Detach().CompareScalar(kernel.OpEq, 0) }

// LogicalAnd returns whether a and b are both true.
func (a *Tensor) LogicalAnd(b *Tensor) *Tensor {
	never := filled(a.spec.mesh.shapeSpec("LogicalAnd", nil), tensor.Bool, 0)
	return a.truth().where("LogicalAnd", b.truth(), never)
}

// LogicalOr returns whether a or b is true, or both are.
func (a *Tensor) LogicalOr(b *Tensor) *Tensor { return b.truth().maskedFill("LogicalOr", a.truth(), 1) }

// LogicalXor returns whether one of a and b is true and the other is not.
func (a *Tensor) LogicalXor(b *Tensor) *Tensor {
	return a.truth().compare("LogicalXor", kernel.OpNe, b.truth())
}

// truth returns whether x is true.
func (x *Tensor) truth() *Tensor { return x.Detach().Cast(tensor.Bool) }

// Tril returns x, [..., R, C], with 0 above a diagonal of its matrices: elements [r, c]
// with c - r > diagonal are 0. Diagonal 0 is the main one, 1 the one above it, -1 the one
// below. The result lies as x does, and nothing is communicated, unless x is an average over
// ranks, which is reduced first. The gradient is dy with 0 there.
func (x *Tensor) Tril(diagonal int) *Tensor { return x.triangle("Tril", kernel.OpGt, diagonal) }

// Triu returns x with 0 below a diagonal: elements [r, c] with c - r < diagonal are 0;
// see Tril.
func (x *Tensor) Triu(diagonal int) *Tensor { return x.triangle("Triu", kernel.OpLt, diagonal) }

// triangle returns x with 0 where op(c - r, diagonal).
func (x *Tensor) triangle(op string, zero kernel.CompareOp, diagonal int) *Tensor {
	if x.NDim() < 2 {
		refuse(op, "the input has fewer than two dimensions", "give matrices, [..., R, C]", operand("input", x))
	}
	r, c := x.NDim()-2, x.NDim()-1
	if x.stays(r) && x.stays(c) && tensor.HostComputes(x.spec.mesh.eng.dev) {
		out := single(op, layout.Opaque, x, x.DType(), func(x *tensor.Tensor) *tensor.Tensor {
			return tensor.Triangle(x, diagonal, zero == kernel.OpLt)
		})
		if x.tracked() {
			out.recordTwice(op, func(gy *Tensor) { x.accumulate(gy.triangle(op, zero, diagonal)) })
		}
		return out
	}
	column := x.positions(c, 0).Reshape(1, -1)
	row := x.positions(r, diagonal).Reshape(-1, 1)
	return x.MaskedFill(column.Compare(zero, row), 0)
}

// positions returns first, first+1, … for the positions along dim, divided as x is there.
func (x *Tensor) positions(dim, first int) *Tensor {
	places := make([]layout.Placement, len(x.spec.placements))
	for axis, p := range x.spec.placements {
		if p.Shards(dim) {
			places[axis] = p.WithDim(0)
		}
	}
	return Arange(x.spec.mesh, tensor.Int64, first, x.spec.shape[dim], places...)
}
