package dtensor

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

// Narrow returns elements start to start+length of a dimension; a negative start
// counts from the end.
//
//	t                     result
//	S(dim)                S(dim) with explicit sizes: each rank keeps what it has of them
//	S(i), R, P            the same
//
// Nothing is communicated. Where one part of the range is to be divided evenly
// again, Redistribute the result. The gradient is dy among zeros, in t's
// layout. Narrow throws a *LayoutError if the range is not within the dimension.
func (t *Tensor) Narrow(dim, start, length int) *Tensor {
	defer t.spec.mesh.Span("Narrow").End()
	dim = t.dim("Narrow", dim)
	if n := t.spec.shape[dim]; start < 0 && start >= -n {
		start += n
	}
	m := t.spec.mesh
	r := t.viewRule(ruleKey{op: "Narrow", attr: [3]int{dim, start, length}}, false,
		func(in layout.Layout) (layout.View, error) { return layout.Narrow(in, dim, start, length) })
	in := t.to(r.in[0], "Narrow")
	out := m.viewed(r, in, func(x *tensor.Tensor) *tensor.Tensor {
		return tensor.Narrow(x, dim, r.clip(dim, start), r.out[0].local[dim])
	})
	if t.tracked() {
		out.recordView("Narrow", func(gy *Tensor) {
			p := narrowGrad(gy, r, dim, start)
			if !gy.tracked() {
				in.accumulatePiece(p)
				return
			}
			gx := whole([]piece{p})
			gx.recordView("NarrowGrad", func(g *Tensor) { gy.accumulate(g.Narrow(dim, start, length)) })
			in.accumulate(gx)
		})
	}
	return out
}

// clip returns where the part of a narrowed dimension begins in this rank's shard.
func (r *rule) clip(dim, start int) int {
	s := r.in[0]
	return min(max(start-s.offset[dim], 0), s.local[dim])
}

// narrowGrad returns the gradient of the transpose of the view r, dy among zeros, as a piece. Where dy is
// Partial, so is the result.
func narrowGrad(gy *Tensor, r *rule, dim, start int) piece {
	in, out := slices.Clone(r.in[0].placements), slices.Clone(r.out[0].placements)
	for axis, p := range gy.spec.placements {
		if !in[axis].IsShard() {
			in[axis], out[axis] = layout.Replicate(), layout.Replicate()
			if p.IsPartial() && !p.IsMask() {
				in[axis], out[axis] = p, p
			}
		}
	}
	gy = gy.to(gy.spec.with("NarrowGrad", out), "NarrowGrad")
	p := piece{s: r.in[0].with("NarrowGrad", in), dy: gy, dim: dim, start: start}
	if !p.s.mesh.outside() {
		p.at = r.clip(dim, start)
	}
	return p
}

// Split cuts t along a dimension into pieces of the given sizes, which add up
// to the dimension; see Narrow.
func (t *Tensor) Split(dim int, sizes ...int) []*Tensor {
	dim = t.dim("Split", dim)
	if total := ints.Sum(sizes); total != t.spec.shape[dim] {
		refuse("Split", fmt.Sprintf("sizes %v add up to %d, dim %d has %d", slices.Clone(sizes), total, dim, t.spec.shape[dim]), "",
			operand("input", t))
	}
	pieces, start := make([]*Tensor, len(sizes)), 0
	for i, n := range sizes {
		pieces[i] = t.Narrow(dim, start, n)
		start += n
	}
	return pieces
}

// Chunk cuts t along a dimension into n pieces as torch.chunk does: of
// ⌈size/n⌉ each, the last one shorter, and so perhaps fewer than n;
// n empty ones of a dimension without elements.
func (t *Tensor) Chunk(dim, n int) []*Tensor {
	dim = t.dim("Chunk", dim)
	if n < 1 {
		refuse("Chunk", fmt.Sprintf("%d pieces", n), "ask for at least one", operand("input", t))
	}
	if size := t.spec.shape[dim]; size > 0 {
		n = min(n, size) // more pieces would be empty
	}
	var sizes []int
	for _, size := range layout.ChunkSizes(t.spec.shape[dim], n) {
		if size > 0 || t.spec.shape[dim] == 0 {
			sizes = append(sizes, size)
		}
	}
	return t.Split(dim, sizes...)
}

// Pad returns t with elements v added along dimension dim, before of them in front of its own and after of them behind. The
// layouts and the gradient are those of Cat.
func (t *Tensor) Pad(dim, before, after int, v float64) *Tensor {
	defer t.spec.mesh.Span("Pad").End()
	dim = t.dim("Pad", dim)
	if before < 0 || after < 0 {
		refuse("Pad", fmt.Sprintf("%d elements before and %d after", before, after), "give none that is negative; Narrow takes some away",
			operand("input", t))
	}
	edge := func(n int) *Tensor {
		shape := slices.Clone(t.spec.shape)
		shape[dim] = n
		return filled(t.spec.mesh.shapeSpec("Pad", shape), t.DType(), v)
	}
	return Cat(dim, edge(before), t, edge(after))
}

// Cat joins tensors along a dimension; their other sizes are equal. A tensor of shape [0]
// adds nothing to any, as in PyTorch.
//
//	all inputs           result
//	R                    R
//	S(i), i not dim      S(i)
//	P(op)                P(op)
//	other                the cheapest of these rows
//
// The gradient of each input is its part of dy. Cat throws a *LayoutError for
// no inputs, and if other sizes or the types differ.
func Cat(dim int, ts ...*Tensor) *Tensor {
	if len(ts) == 0 {
		refuse("Cat", "there is nothing to join", "give at least one tensor")
	}
	m := sameMesh("Cat", ts...)
	defer m.Span("Cat").End()
	given := ts
	ts = withoutNothing(ts)
	dim = ts[0].dim("Cat", dim)
	declare := func() (*layout.Rule, error) {
		shapes := make([][]int, len(ts))
		for i, t := range ts {
			shapes[i] = t.spec.shape
			if t.DType() != ts[0].DType() {
				return nil, fmt.Errorf("input %d holds %v, input 0 %v; cast one of them", i, t.DType(), ts[0].DType())
			}
		}
		return layout.Concatenation("Cat", dim, shapes...)
	}
	var r *rule
	if len(ts) <= maxOperands {
		key := keyOf("Cat", ts...)
		key.attr[0] = dim
		r = m.rule(key, declare, ts...)
	} else {
		key := ruleKey{op: "Cat", nodes: m.inNodes(ts)} // as it is not the operands', it finds no rule
		c, err := choose(key, declare, ts)
		r = m.chosen(key, c, err, ts)
	}
	in, locals := make([]*Tensor, len(ts)), make([]*tensor.Tensor, len(ts))
	for i, t := range ts {
		in[i] = t.to(r.in[i], "Cat")
		locals[i] = in[i].local
	}
	out := m.part(r.out[0], ts[0].DType(), func() *tensor.Tensor { return tensor.Cat(dim, locals...) })
	if Tracked(given...) {
		out.recordTwice("Cat", func(gy *Tensor) {
			if len(ts) < len(given) {
				for _, t := range given {
					if t.nothing() && t.takes() {
						t.accumulate(filled(t.spec.gradient(), t.DType(), 0))
					}
				}
			}
			start := 0
			for _, t := range in {
				n := t.spec.shape[dim]
				if t.takes() {
					t.accumulate(gy.Narrow(dim, start, n))
				}
				start += n
			}
		})
	}
	return out
}

// nothing reports whether the shape of t is [0].
func (t *Tensor) nothing() bool { return t.NDim() == 1 && t.spec.shape[0] == 0 }

// withoutNothing returns the tensors but those of shape [0], if there are others.
func withoutNothing(ts []*Tensor) []*Tensor {
	if !slices.ContainsFunc(ts, (*Tensor).nothing) {
		return ts
	}
	if rest := slices.DeleteFunc(slices.Clone(ts), (*Tensor).nothing); len(rest) > 0 {
		return rest
	}
	return ts
}

// Stack joins tensors of one shape along a new dimension dim; see Cat. It throws a *LayoutError for no inputs, and if shapes or
// types differ.
func Stack(dim int, ts ...*Tensor) *Tensor {
	if len(ts) == 0 {
		refuse("Stack", "there is nothing to join", "give at least one tensor")
	}
	sameMesh("Stack", ts...)
	sameType("Stack", ts...)
	n := ts[0].NDim()
	if dim < -n-1 || dim > n {
		refuse("Stack", fmt.Sprintf("dim %d is out of range [%d, %d]", dim, -n-1, n), "", operand("operand 0", ts[0]))
	}
	rows := make([]*Tensor, len(ts))
	for i, t := range ts {
		if !slices.Equal(t.spec.shape, ts[0].spec.shape) {
			refuse("Stack", fmt.Sprintf("operand %d has another shape than operand 0", i), "give tensors of one shape",
				operand("operand 0", ts[0]), operand(fmt.Sprintf("operand %d", i), t))
		}
		rows[i] = t.Unsqueeze(dim)
	}
	return Cat((dim+n+1)%(n+1), rows...)
}
