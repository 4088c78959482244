package dtensor

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

// Reshape returns t with other sizes and the same elements in the same order.
// One size may be -1: what is left over.
//
// A shard survives if what each rank holds is a shard of the result: blocks of
// whole rows of the new shape, as in [B, T·C] S(1) → [B, T, C] S(1) if each
// block is a multiple of C. Nothing is communicated then, and nothing copied. A
// shard that does not survive becomes that of another dimension that does, by
// an all-to-all, else R. Partial stays as it is, and MaskPartial if the rows
// do: [N, D] → [B, T, D] does not cut or join them. The gradient is the reshape
// back.
//
// Reshape throws a *LayoutError if the sizes do not multiply to the number of
// elements.
func (t *Tensor) Reshape(shape ...int) *Tensor {
	m := t.spec.mesh
	var buf [maxDims]int
	shape = t.fillShape(buf[:0], shape)
	if slices.Equal(shape, t.spec.shape) {
		return t
	}
	key := ruleKey{op: "Reshape"}
	key.in[1] = m.shapeSpec("Reshape", shape)
	keep := t.spec.masked && t.rowsStay(shape)
	if keep {
		key.attr[0] = 1
	}
	r := t.viewRule(key, keep, func(in layout.Layout) (layout.View, error) { return layout.Reshape(in, shape) })
	in := t.to(r.in[0], "Reshape")
	out := m.viewed(r, in, func(x *tensor.Tensor) *tensor.Tensor { return x.Reshape(r.out[0].local...) })
	if t.tracked() {
		back := t.spec.shape
		out.recordView("Reshape", func(gy *Tensor) { in.accumulate(gy.Reshape(back...)) })
	}
	return out
}

// rowsStay reports whether the rows of a MaskPartial tensor are rows of the
// shape too: whether both end in the sizes of a row of the table. Ids are rows
// of one element.
func (t *Tensor) rowsStay(shape []int) bool {
	width := 1
	for _, p := range t.spec.placements {
		if table, dim, ok := p.Offset(); ok && !t.DType().Int() {
			width = ints.Product(table[:dim]) * ints.Product(table[dim+1:])
			break
		}
	}
	ends := func(shape []int) bool {
		n := 1
		for d := len(shape) - 1; d >= 0 && n != width; d-- {
			n *= shape[d]
		}
		return n == width
	}
	return ends(t.spec.shape) && ends(shape)
}

// fillShape appends the shape to dst with -1 replaced.
func (t *Tensor) fillShape(dst, shape []int) []int {
	n, open := 1, -1
	if len(shape) > maxDims {
		refuse("Reshape", fmt.Sprintf("%d dimensions: at most %d are supported", len(shape), maxDims), "", operand("input", t))
	}
	for i, size := range shape {
		switch {
		case size == -1 && open < 0:
			open = i
		case size < 0:
			refuse("Reshape", fmt.Sprintf("size %d of %v is negative", size, slices.Clone(shape)), "only one may be -1, for what is left over",
				operand("input", t))
		default:
			n *= size
		}
	}
	dst = append(dst, shape...)
	if open >= 0 {
		if n == 0 || t.spec.numel%n != 0 {
			refuse("Reshape", fmt.Sprintf("the sizes of %v multiply to %d, which does not divide %d", slices.Clone(shape), n, t.spec.numel), "",
				operand("input", t))
		}
		dst[open] = t.spec.numel / n
		n = t.spec.numel
	}
	if n != t.spec.numel {
		refuse("Reshape", fmt.Sprintf("%v has %d elements, the input %d", slices.Clone(shape), n, t.spec.numel),
			"keep their number, or give one size as -1", operand("input", t))
	}
	return dst
}

// Unsqueeze inserts a dimension of size 1 before dimension dim, which may be
// NDim() or count from the end, -1 being last.
func (t *Tensor) Unsqueeze(dim int) *Tensor {
	if dim < -t.NDim()-1 || dim > t.NDim() {
		refuse("Unsqueeze", fmt.Sprintf("dim %d is out of range [%d, %d]", dim, -t.NDim()-1, t.NDim()), "", operand("input", t))
	}
	if dim < 0 {
		dim += t.NDim() + 1
	}
	return t.Reshape(slices.Insert(slices.Clone(t.spec.shape), dim, 1)...)
}

// Squeeze removes dimension dim, whose size is 1.
func (t *Tensor) Squeeze(dim int) *Tensor {
	t = t.lift()
	dim = t.dim("Squeeze", dim)
	if t.spec.shape[dim] != 1 {
		refuse("Squeeze", fmt.Sprintf("dim %d has size %d, not 1", dim, t.spec.shape[dim]), "squeeze a dim of size 1", operand("input", t))
	}
	return t.Reshape(slices.Delete(slices.Clone(t.spec.shape), dim, dim+1)...)
}

// Flatten merges dimensions from to to, both included. A tensor without dimensions
// becomes one of size 1.
func (t *Tensor) Flatten(from, to int) *Tensor {
	t = t.lift()
	from, to = t.dim("Flatten", from), t.dim("Flatten", to)
	if from > to {
		refuse("Flatten", fmt.Sprintf("dim %d comes after dim %d", from, to), "give the first one first", operand("input", t))
	}
	shape := slices.Clone(t.spec.shape[:from+1])
	for _, size := range t.spec.shape[from+1 : to+1] {
		shape[from] *= size
	}
	return t.Reshape(append(shape, t.spec.shape[to+1:]...)...)
}
