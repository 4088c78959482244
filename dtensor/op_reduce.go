package dtensor

import (
	"fmt"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// The reductions combine the elements of some dimensions, all of them if none
// is named. With keepdim they stay with size 1, else they are removed.
//
//	x                       Sum, Mean          Amax      Amin
//	R                       R                  R         R
//	S(i), i not reduced     S(i)               S(i)      S(i)
//	S(i), i reduced         P(sum)             P(max)    P(min)
//	P(sum), P(avg)          the same           R         R
//	P(max)                  R                  P(max)    R
//	P(min)                  R                  R         P(min)

// Sum adds up the elements of dims. Sums of integers and Bool are Int64. Its
// gradient is dy repeated.
func (x *Tensor) Sum(dims []int, keepdim bool) *Tensor {
	var out *Tensor
	if x.spec.mesh.inNodes([]*Tensor{x}) {
		out = x.wideSum(dims, keepdim).ofType(x.DType())
	} else {
		out = x.reduce(kernel.OpSum, dims, keepdim)
	}
	if x.tracked() {
		out.recordTwice("Sum", func(gy *Tensor) { x.accumulate(gy.Reshape(x.reducedShape(dims, true)...).Expand(x.spec.shape...)) })
	}
	return out
}

// wideSum returns the sum in the type in which it is computed, in which nodes of it are added up. Of several dimensions the last is
// summed first: where it is divided, ranks have nodes of these sums, and a result has fewer elements than x. It is not recorded.
func (x *Tensor) wideSum(dims []int, keepdim bool) *Tensor {
	sum, mask := x.Detach().widen(), x.dims("Sum", dims)
	if mask == 0 {
		return sum.reduce(kernel.OpSum, dims, keepdim)
	}
	for d := x.NDim() - 1; d >= 0; d-- {
		if mask>>d&1 != 0 {
			sum = sum.reduce(kernel.OpSum, []int{d}, keepdim)
		}
	}
	return sum
}

// Mean returns the mean of the elements of dims: their sum over their number
// in the global tensor, whatever the shards. Its gradient is dy over that
// number, repeated. Parts of a sharded dimension are divided before they are added
// up, so that the last bits may differ from those of a mean on one rank: that of 30
// ones on 4 ranks is 1.0000001. With same bits they do not. It throws a *LayoutError
// for integers.
func (x *Tensor) Mean(dims []int, keepdim bool) *Tensor {
	defer x.spec.mesh.Span("Mean").End()
	if !x.DType().Float() {
		refuse("Mean", "the input holds "+x.DType().String(), "Cast it to a floating-point type", operand("input", x))
	}
	n := x.count("Mean", dims)
	var out *Tensor
	if x.spec.mesh.eng.same { // nodes are divided once they are added up
		out = x.wideSum(dims, keepdim).divide(float64(n)).Cast(x.DType())
	} else {
		out = x.reduceBy(kernel.OpSum, dims, keepdim, func(x *tensor.Tensor, dims []int) *tensor.Tensor {
			return tensor.MeanPart(x, dims, keepdim, n)
		})
	}
	if x.tracked() {
		out.recordTwice("Mean", func(gy *Tensor) {
			x.accumulate(gy.divide(float64(n)).Reshape(x.reducedShape(dims, true)...).Expand(x.spec.shape...))
		})
	}
	return out
}

// count returns how many elements a reduction over dims combines into one.
func (x *Tensor) count(op string, dims []int) int {
	n, mask := 1, x.dims(op, dims)
	for d, size := range x.spec.shape {
		if mask>>d&1 != 0 {
			n *= size
		}
	}
	return n
}

// divide returns x/v, correctly rounded where x·(1/v) is not.
func (x *Tensor) divide(v float64) *Tensor {
	law := scales(x, layout.Scales)
	if v == 0 { // of a part that is 0 it would make NaN
		law = layout.Opaque
	}
	out := single("divide", law, x, x.DType(), func(x *tensor.Tensor) *tensor.Tensor { return tensor.BinaryScalar(kernel.OpDiv, x, v) })
	if x.tracked() {
		out.recordTwice("divide", func(gy *Tensor) { x.accumulate(gy.divide(v)) })
	}
	return out
}

// Amax returns the largest elements of dims, NaN if one is NaN. Its gradient
// is shared equally by the elements that equal the result. It throws a
// *LayoutError for dims without elements.
func (x *Tensor) Amax(dims []int, keepdim bool) *Tensor {
	return x.extreme(kernel.OpAmax, dims, keepdim)
}

// Amin returns the smallest elements of dims; see Amax.
func (x *Tensor) Amin(dims []int, keepdim bool) *Tensor {
	return x.extreme(kernel.OpAmin, dims, keepdim)
}

func (x *Tensor) extreme(op kernel.ReduceOp, dims []int, keepdim bool) *Tensor {
	mask := x.dims(op.String(), dims)
	for d, size := range x.spec.shape {
		if mask>>d&1 != 0 && size == 0 {
			refuse(op.String(), fmt.Sprintf("dim %d has no elements", d), "reduce a dim that has", operand("input", x))
		}
	}
	out := x.reduce(op, dims, keepdim)
	if x.tracked() {
		in, y := x.Detach(), out.Detach()
		out.recordTwice(op.String(), func(gy *Tensor) {
			kept, dt := in.reducedShape(dims, true), gy.DType()
			gy = gy.widen()
			hit := in.Compare(kernel.OpEq, y.Reshape(kept...)).Cast(gy.DType())
			share := gy.Reshape(kept...).Div(hit.Sum(dims, true))
			x.accumulate(hit.Mul(share).Cast(dt))
		})
	}
	return out
}

// Prod multiplies the elements of dims. Its gradient is dy times the product
// of the other elements; x is brought to shards of other dimensions, or
// replicated, before.
func (x *Tensor) Prod(dims []int, keepdim bool) *Tensor {
	out := x.reduce(kernel.OpProd, dims, keepdim)
	if x.tracked() {
		out.recordTwice("Prod", func(gy *Tensor) {
			dt := gy.DType()
			gy, in := gy.widen(), x.widen()
			zero := in.CompareScalar(kernel.OpEq, 0)
			zeros := zero.Sum(dims, true)
			filled := in.MaskedFill(zero, 1)
			rest := filled.Prod(dims, true) // the product of what is not zero
			none := rest.Div(filled).MaskedFill(zeros.CompareScalar(kernel.OpNe, 0), 0)
			one := rest.MaskedFill(zeros.CompareScalar(kernel.OpNe, 1), 0)
			x.accumulate(gy.Reshape(in.reducedShape(dims, true)...).Mul(zero.Where(one, none)).Cast(dt))
		})
	}
	return out
}

// reduce is a reduction without gradient.
func (x *Tensor) reduce(op kernel.ReduceOp, dims []int, keepdim bool) *Tensor {
	return x.reduceBy(op, dims, keepdim, func(x *tensor.Tensor, dims []int) *tensor.Tensor { return tensor.Reduce(op, x, dims, keepdim) })
}

// reduceBy is reduce by f.
func (x *Tensor) reduceBy(op kernel.ReduceOp, dims []int, keepdim bool, f func(x *tensor.Tensor, dims []int) *tensor.Tensor) *Tensor {
	defer x.spec.mesh.Span(op.String()).End()
	m := x.spec.mesh
	dt := x.DType()
	if !dt.Float() && op.Row().Grows {
		if dt = tensor.Int64; x.DType() != dt {
			x = x.Reduced() // the parts may wrap in their type, their sum in Int64 does not
		}
	}
	mask := x.dims(op.String(), dims)
	key := ruleKey{op: op.String(), attr: [3]int{mask}}
	if keepdim {
		key.attr[1] = 1
	}
	key.in[0] = x.spec
	if x.NDim() == 0 {
		dims = nil
	}
	r := m.rule(key, func() (*layout.Rule, error) {
		return layout.Reduction(key.op, reduceOps[op], x.spec.shape, dims, keepdim)
	}, x)
	in := x.to(r.in[0], key.op)
	if m.outside() {
		return m.empty(r.out[0], dt)
	}
	list := make([]int, 0, maxDims)
	for d := range x.NDim() {
		if mask>>d&1 != 0 {
			list = append(list, d)
		}
	}
	out := wrap(r.out[0], r.reduction(in.local, list, f, reason{key.op, in.Facts(), in})).of(in.Facts())
	out.made(op.String(), in)
	return out
}

// reduction returns f, a reduction over dims. Nodes that are not one of each rank are added up.
func (r *rule) reduction(x *tensor.Tensor, dims []int, f func(x *tensor.Tensor, dims []int) *tensor.Tensor, why reason) *tensor.Tensor {
	if r.nodes == nil {
		return f(x, dims)
	}
	s, at := r.out[0], 0
	mine := r.nodes[s.mesh.Coord()[r.along]]
	parts := make([]*tensor.Tensor, len(mine))
	for i, leaves := range mine {
		n := x.Dim(dims[0]) / ints.Sum(mine) * leaves // of the outermost index that is summed over
		parts[i] = f(tensor.Narrow(x, dims[0], at, n), dims).Reshape(1, ints.Product(s.local))
		at += n
	}
	if len(mine) == 0 {
		parts = []*tensor.Tensor{tensor.Narrow(f(x, dims).Reshape(1, ints.Product(s.local)), 0, 0, 0)}
	}
	nodes := tensor.Cat(0, parts...)
	defer nodes.Free()
	return s.mesh.sumNodes(s.mesh.groupOf(1<<r.along), nodes, r.nodes, why, s.local)
}

var reduceOps = [...]layout.ReduceOp{kernel.OpSum: layout.Sum, kernel.OpProd: layout.Prod, kernel.OpAmax: layout.Max,
	kernel.OpAmin: layout.Min}

// reducedShape returns the shape of a reduction of x over dims.
func (x *Tensor) reducedShape(dims []int, keepdim bool) []int {
	mask := x.dims("reducedShape", dims)
	shape := make([]int, 0, x.NDim())
	for d, n := range x.spec.shape {
		switch {
		case mask>>d&1 == 0:
			shape = append(shape, n)
		case keepdim:
			shape = append(shape, 1)
		}
	}
	return shape
}
