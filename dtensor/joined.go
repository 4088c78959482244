package dtensor

import (
	"slices"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/pairwise"
	"github.com/gorun-spmd/gorun/tensor"
)

// With SameBits gradients that several Linears hand to one tensor, such as those of queries, keys and values, are one product:
//
//	dy [..., O]   w [O, I]   →   dy₁·w₁ + dy₂·w₂ + … = [dy₁ dy₂ …]·w   where w has the rows of w₁, w₂, …
//
// The ranks then have nodes of their sum, which are added up in one call; the sum of a node of each would be no
// node. The inner dimension has as many leaves as all of them are divided into: leaf i is leaf i of dy₁, of dy₂ and so on.

// A pendingProduct is a gradient that is still to be computed: dy·w of a Linear.
type pendingProduct struct {
	of    *Tensor // whose gradient it is
	by    *node   // of the Linear
	dy, w *Tensor
}

// accumulateProduct is accumulate of the gradient dy·w of a Linear. With SameBits it is computed once all have arrived.
func (t *Tensor) accumulateProduct(by *node, dy, w *Tensor) {
	n := t.node
	switch {
	case n == nil || n.tape.closed:
	case n.second != nil && n.second.origin != nil: // t is another layout of it
		n.second.origin.accumulateProduct(by, dy, w)
	case t.spec.mesh.eng.same && !t.again():
		n.products = append(n.products, pendingProduct{t, by, dy, w})
	default:
		t.accumulate(multiply(dy, w, false, false))
	}
}

// join adds the products that have arrived at n to its gradient.
func (n *node) join() {
	if len(n.products) == 0 {
		return
	}
	list, eng := n.products, n.spec.mesh.eng
	n.products = nil
	last := list[len(list)-1]
	if eng.observer != nil {
		defer eng.differentiate(last.by).end()
	}
	dy, w := last.dy, last.w
	if len(list) > 1 {
		dy, w = joined(list)
	}
	if eng.detect || eng.products != nil || eng.ops != nil {
		eng.detecting = last.by
		if eng.ops != nil {
			eng.ops.handsOn(last.by, dy)
		}
	}
	last.of.accumulate(multiply(dy, w, false, false))
}

// joined returns what products are one product of.
func joined(list []pendingProduct) (dy, w *Tensor) {
	first := list[0].dy
	m, inner, total, leaves := first.spec.mesh, first.NDim()-1, 0, 1
	for _, p := range list {
		total += p.w.Dim(0)
	}
	for total/(2*leaves) >= pairwise.Least && !slices.ContainsFunc(list, func(p pendingProduct) bool { return p.w.Dim(0)%(2*leaves) > 0 }) {
		leaves *= 2
	}
	places, weights := joinedPlaces(list)
	cut, nodes := layout.StayAtLeaves(m.pure, places, inner, total, total/leaves)
	for axis, p := range cut {
		if p != places[axis] && p.IsReplicate() && !slices.ContainsFunc(cut, func(p layout.Placement) bool { return p.Shards(0) }) &&
			first.Dim(0) >= m.axes[axis].Size {
			cut[axis] = layout.Shard(0) // the ranks have no nodes, but may share out the rows
		}
	}
	dys, ws := make([]*Tensor, len(list)), make([]*Tensor, len(list))
	of := func(dim, leaf int, others []layout.Placement) []layout.Placement { // of a tensor whose leaves have so many elements of dim
		its := slices.Clone(others)
		for axis, p := range cut {
			switch {
			case p == layout.Shard(inner):
				its[axis] = layout.Shard(dim)
			case p.Shards(inner):
				var sizes []int
				for _, leaves := range nodes {
					sizes = append(sizes, ints.Sum(leaves)*leaf)
				}
				its[axis] = layout.ShardSizes(dim, sizes...)
			}
		}
		return its
	}
	for i, p := range list {
		leaf := p.w.Dim(0) / leaves
		dys[i] = p.dy.to(p.dy.spec.with("Linear", of(inner, leaf, cut)), "LinearGrad")
		ws[i] = p.w.to(p.w.spec.with("Linear", of(0, leaf, weights)), "LinearGrad")
	}
	return interleaved(dys, inner, leaves, of(inner, total/leaves, cut)), interleaved(ws, 0, leaves, of(0, total/leaves, weights))
}

// joinedPlaces returns in which layouts joined dy, and w for what does not divide their inner dimension, have to be moved least.
func joinedPlaces(list []pendingProduct) (places, weights []layout.Placement) {
	axes := len(list[0].dy.spec.placements)
	places, weights = make([]layout.Placement, axes), make([]layout.Placement, axes)
	inner := list[0].dy.NDim() - 1
	for axis := range axes {
		outputs := true // all weights are divided by inputs alike
		for _, p := range list {
			dy, w := p.dy.spec.placements[axis], p.w.spec.placements[axis]
			switch {
			case dy.Shards(inner), w.Shards(0) && !dy.IsShard():
				places[axis] = layout.Shard(inner)
			case dy.IsShard() && !dy.IsCyclic() && places[axis].IsReplicate():
				places[axis] = dy
			}
			outputs = outputs && w == layout.Shard(1)
		}
		if outputs && places[axis].IsReplicate() {
			weights[axis] = layout.Shard(1)
		}
	}
	for axis, p := range places { // explicit sizes fit where no other axis divides the dimension, here and where they are from
		if d, ok := p.Dim(); ok && !(dividesAlone(places, axis, p) && slices.ContainsFunc(list, func(own pendingProduct) bool {
			return dividesAlone(own.dy.spec.placements, axis, p)
		})) {
			places[axis] = layout.Shard(d)
		}
	}
	return places, weights
}

// dividesAlone reports whether an axis has the placement p, and no other axis divides its dimension.
func dividesAlone(places []layout.Placement, axis int, p layout.Placement) bool {
	d, _ := p.Dim()
	for other, its := range places {
		if other == axis && its != p || other != axis && its.Shards(d) {
			return false
		}
	}
	return true
}

// interleaved returns tensors one beside the other along dim, leaf by leaf: the first of each, the second of each and so on.
func interleaved(list []*Tensor, dim, leaves int, places []layout.Placement) *Tensor {
	shape, facts := list[0].Shape(), uint32(0)
	for _, t := range list[1:] {
		shape[dim] += t.Dim(dim)
	}
	s := list[0].spec.mesh.mustSpec("Linear", shape, places)
	for _, t := range list {
		facts = facts*31 ^ t.Facts()
	}
	return s.mesh.part(s, list[0].DType(), func() *tensor.Tensor {
		out, at := tensor.New(s.mesh.eng.dev, list[0].DType(), s.local...), 0
		outer, rest := ints.Product(s.local[:dim]), ints.Product(s.local[dim+1:])
		leaf := shape[dim] / leaves
		mine := s.local[dim] / max(leaf, 1)
		all := out.Reshape(outer*mine, leaf, rest)
		for _, t := range list {
			its := t.Dim(dim) / leaves
			tensor.CopyBox(all, []int{0, at, 0}, t.local.Reshape(outer*mine, its, rest), make([]int, 3), []int{outer * mine, its, rest})
			at += its
		}
		return out
	}).of(facts)
}
