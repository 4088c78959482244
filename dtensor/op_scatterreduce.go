package dtensor

import (
	"fmt"
	"math"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// ScatterReduce returns x with the elements of src folded along a dimension into the elements where index says:
//
//	y = x;  y[i][index[i][j][k]][k] = op(y[i][index[i][j][k]][k], src[i][j][k])   for dim 1
//
// op is layout.Sum, Avg, Prod, Max or Min. Without self an element of x is not one of those that are folded, and stays only
// where nothing is put. src has the shape of the index, which is at most x's in the other dimensions; to fold slices, as
// torch.index_reduce does, Expand the index. Elements are folded in the order of j in every layout, and a NaN stays in a maximum
// or minimum. An average is of floating-point numbers.
//
// The layouts are those of Scatter. A rank folds on its host; what lies on a GPU is copied there and back. Of the
// gradients: elements that equal a maximum or minimum share dy, and that of a product is right where elements are 0. It throws
// as Scatter does.
func (x *Tensor) ScatterReduce(dim int, index, src *Tensor, op layout.ReduceOp, self bool) *Tensor {
	const name = "ScatterReduce"
	defer x.spec.mesh.Span(name).End()
	if x.NDim() == 0 {
		return x.lift().ScatterReduce(dim, index.lift(), src.lift(), op, self).Reshape()
	}
	dim = x.dim(name, dim)
	wantScatter(name, x, index, src)
	fold, ok := map[layout.ReduceOp]kernel.ReduceOp{layout.Sum: kernel.OpSum, layout.Avg: kernel.OpSum, layout.Prod: kernel.OpProd,
		layout.Max: kernel.OpAmax, layout.Min: kernel.OpAmin}[op]
	switch dt := x.DType(); {
	case !ok:
		refuse(name, fmt.Sprintf("it does not fold by %v", op), "use layout.Sum, Avg, Prod, Max or Min", operand("x", x))
	case op == layout.Avg && !dt.Float():
		refuse(name, "the input holds "+dt.String(), "Cast it to a floating-point type", operand("x", x))
	case dt == tensor.Bool && op != layout.Max && op != layout.Min:
		refuse(name, fmt.Sprintf("bool has no %v", op), "Cast to an integer type", operand("x", x))
	case dt.Narrow():
		return x.widen().ScatterReduce(dim, index, src.widen(), op, self).Cast(dt)
	}
	x, index, src = wholeWithSameBits(x, index, src)
	a, b := x.Detach(), src.Detach()
	out, _ := a.scattered(name, dim, index, b, func(dst *tensor.Tensor, dim int, at, src *tensor.Tensor) {
		tensor.ScatterReduceTo(dst, dim, at, src, fold, !self)
	})
	out.made(name, a, b)
	if op == layout.Avg {
		out = out.Div(a.foldCounts(dim, index, self))
	}
	if Tracked(x, src) {
		out.recordTwice(name, func(gy *Tensor) {
			gx, gsrc := gy.foldGrad(x, dim, index, src, out, op, self)
			x.accumulate(gx)
			src.accumulate(gsrc)
		})
	}
	return out
}

// putCounts returns how many elements are put in each place of x.
func (x *Tensor) putCounts(dim int, index *Tensor) *Tensor {
	none := filled(x.Reduced().spec, x.DType(), 0)
	return none.ScatterAdd(dim, index, index.CompareScalar(kernel.OpGe, 0).Cast(x.DType()))
}

// foldCounts returns how many elements ScatterReduce folds in each place of x.
func (x *Tensor) foldCounts(dim int, index *Tensor, self bool) *Tensor {
	n := x.putCounts(dim, index)
	if self {
		return n.AddScalar(1)
	}
	return n.Clamp(1, math.Inf(1)) // where nothing is put x stays
}

// foldGrad returns the gradients of ScatterReduce by x and src; y is its result.
func (gy *Tensor) foldGrad(x *Tensor, dim int, index, src, y *Tensor, op layout.ReduceOp, self bool) (gx, gsrc *Tensor) {
	dt, gone := gy.DType(), (*Tensor)(nil) // where x is not folded
	if !self {
		gone = x.putCounts(dim, index).CompareScalar(kernel.OpGt, 0)
	}
	switch op {
	case layout.Sum, layout.Avg:
		if op == layout.Avg {
			gy = gy.Div(x.foldCounts(dim, index, self))
		}
		gx, gsrc = gy, gy.Gather(dim, index)
	case layout.Prod: // see Prod
		if !self {
			x = x.MaskedFill(gone, 1)
		}
		ofX, ofSrc := x.CompareScalar(kernel.OpEq, 0), src.CompareScalar(kernel.OpEq, 0)
		zeros := ofX.Cast(dt).ScatterAdd(dim, index, ofSrc.Cast(dt))
		x, src = x.MaskedFill(ofX, 1), src.MaskedFill(ofSrc, 1)
		rest := x.ScatterReduce(dim, index, src, op, true) // the product of what is not zero
		none := gy.Mul(rest).MaskedFill(zeros.CompareScalar(kernel.OpNe, 0), 0)
		one := gy.Mul(rest).MaskedFill(zeros.CompareScalar(kernel.OpNe, 1), 0)
		gx = ofX.Where(one, none.Div(x))
		gsrc = ofSrc.Where(one.Gather(dim, index), none.Gather(dim, index).Div(src))
	default:
		ofX, ofSrc := x.Compare(kernel.OpEq, y), src.Compare(kernel.OpEq, y.Gather(dim, index)).Cast(dt)
		if !self {
			ofX = ofX.LogicalAnd(gone.LogicalNot())
		}
		share := gy.Div(ofX.Cast(dt).ScatterAdd(dim, index, ofSrc))
		gx, gsrc = ofX.Cast(dt).Mul(share), ofSrc.Mul(share.Gather(dim, index))
	}
	if !self {
		gx = gx.MaskedFill(gone, 0)
	}
	return gx, gsrc
}
