package dtensor

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// IndexPut returns x with the slices of src put where the indices of its leading
// dimensions say, as in
//
//	y = x;  y[index[0][i]][index[1][i]] = src[i]    for two indices
//	y = x;  y[index[0][i]][index[1][i]] += src[i]   with accumulate
//
// The indices are integers of one shape, one for each of the first dimensions of x;
// src has that shape and then the other dimensions of x. Where two indices are
// equal the last one is put, in row-major order, and with accumulate both are
// added. The indices are brought to Replicate; x and src may be sharded in any
// dimension, and move as in IndexAdd.
//
// The gradient of x is dy, without accumulate zero where something was put;
// that of src is dy there, zero for a slice that was overwritten. An index out of
// range throws a *tensor.IndexError.
func (x *Tensor) IndexPut(index []*Tensor, src *Tensor, accumulate bool) *Tensor {
	defer x.spec.mesh.Span("IndexPut").End()
	const op = "IndexPut"
	m := sameMesh(op, append(slices.Clone(index), x, src)...)
	if len(index) == 0 || len(index) > x.NDim() {
		refuse(op, fmt.Sprintf("%d indices for %d dimensions", len(index), x.NDim()), "give one for each of the first dimensions",
			operand("x", x))
	}
	each, lead := index[0].Shape(), x.Shape()[:len(index)]
	rest := x.Shape()[len(index):]
	for _, t := range index {
		if !slices.Equal(t.Shape(), each) || !t.DType().Int() {
			refuse(op, fmt.Sprintf("the indices are %v%v and %v%v", index[0].DType(), each, t.DType(), t.Shape()), "give integers of one shape",
				operand("x", x))
		}
	}
	if !slices.Equal(src.Shape(), slices.Concat(each, rest)) {
		refuse(op, fmt.Sprintf("src has shape %v, the indices %v and x %v", src.Shape(), each, x.Shape()),
			fmt.Sprintf("give src the shape %v", slices.Concat(each, rest)), operand("x", x), operand("src", src))
	}
	n, rows := index[0].Numel(), ints.Product(lead)
	at, lost, put := m.places(op, index, lead, n, rows)
	slab := src.Reshape(slices.Concat([]int{n}, rest)...)
	flat := x.Reshape(slices.Concat([]int{rows}, rest)...)
	if !accumulate {
		ones := slices.Repeat([]int{1}, len(rest))
		slab = slab.MaskedFill(lost.Reshape(slices.Concat([]int{n}, ones)...), 0)
		flat = flat.MaskedFill(put.Reshape(slices.Concat([]int{rows}, ones)...), 0)
	}
	return flat.IndexAdd(0, at, slab).Reshape(x.Shape()...)
}

// places returns, replicated, the indices as one index [n] of the flattened
// leading dimensions; which of the n are overwritten by a later one; and which of
// the rows are put to.
func (m *Mesh) places(op string, index []*Tensor, lead []int, n, rows int) (at, lost, put *Tensor) {
	flat, over, hit := make([]int64, n), make([]float32, n), make([]float32, rows)
	for d, t := range index {
		local := t.Full()
		if m.outside() {
			continue
		}
		if k, value, ok := tensor.CheckIndex(local, lead[d]); !ok {
			fault.Throw(&tensor.IndexError{Op: op, Position: k, Value: value, Size: lead[d]})
		}
		for i, v := range tensor.ToSlice[int64](tensor.Cast(local, tensor.Int64)) {
			flat[i] = flat[i]*int64(lead[d]) + v
		}
	}
	last := make(map[int64]int, n)
	for i, row := range flat {
		if earlier, ok := last[row]; ok {
			over[earlier] = 1
		}
		last[row] = i
		if rows > 0 {
			hit[row] = 1
		}
	}
	dev := m.eng.dev
	flags := func(f []float32) *Tensor {
		return m.constant(op, tensor.CompareScalar(kernel.OpNe, tensor.FromSlice(dev, f, len(f)), 0))
	}
	return m.constant(op, tensor.FromSlice(dev, flat, n)), flags(over), flags(hit)
}
