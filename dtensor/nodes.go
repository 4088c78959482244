package dtensor

import (
	"math/bits"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/pairwise"
	"github.com/gorun-spmd/gorun/tensor"
)

// nodesOf returns the axes over which dimension 0 of t is divided so that with SameBits each
// rank has a node of the sums over its first dims dimensions: into equal parts, as many as a power
// of two. least is how many terms a leaf has. It returns none if same bits are off, if t is not
// so divided or if its sums are rounded on the way, as those of bfloat16 are.
func (t *Tensor) nodesOf(dims, least int) (axes axisSet) {
	m := t.spec.mesh
	if !m.eng.same || !t.DType().Float() || t.DType().Narrow() {
		return 0
	}
	parts := 1
	for axis, p := range t.spec.placements {
		switch {
		case m.axes[axis].Size == 1 || !p.Shards(0):
		case p != layout.Shard(0):
			return 0
		default:
			axes |= 1 << axis
			parts *= m.axes[axis].Size
		}
	}
	if parts == 1 || t.Dim(0)%parts != 0 || !pairwise.Divides(product(t.spec.shape[:dims]), parts, least) {
		return 0
	}
	return axes
}

// shardsOnly reports whether t is divided along dimension d alone.
func (t *Tensor) shardsOnly(d int) bool {
	return !slices.ContainsFunc(t.spec.placements, func(p layout.Placement) bool { return !p.IsReplicate() && !p.Shards(d) })
}

// addNodes adds up what the ranks along some axes hold, their nodes of a sum, in pairs: every
// rank gets the whole sum, in the order in which one rank makes it.
func (m *Mesh) addNodes(axes axisSet, node *tensor.Tensor, cause string) *tensor.Tensor {
	if m.outside() {
		return node
	}
	g := m.groupOf(axes)
	parts, n := g.Size(), node.Numel()
	size := (n + parts - 1) / parts
	counts := func(of func(r int) int) []int {
		list := make([]int, parts)
		for r := range list {
			list[r] = of(r)
		}
		return list
	}
	block := func(r int) int { return max(0, min(size, n-r*size)) }
	mine := block(g.Rank())
	nodes := tensor.New(m.eng.dev, node.DType(), parts, mine)
	m.Do(g, comm.Call{Kind: comm.AllToAllVKind, Dst: BufferOf(nodes), Src: BufferOf(node), DstCounts: counts(func(int) int { return mine }),
		SrcCounts: counts(block), Cause: cause})
	var sum pairwise.Fold[*tensor.Tensor]
	add := func(a, b *tensor.Tensor) *tensor.Tensor {
		tensor.AddTo(a, b)
		return a
	}
	for r := range parts {
		sum.Push(tensor.Narrow(nodes, 0, r, 1).Reshape(mine), add)
	}
	all := tensor.New(m.eng.dev, node.DType(), node.Shape()...)
	m.Do(g, comm.Call{Kind: comm.AllGatherVKind, Dst: BufferOf(all), Src: BufferOf(sum.Sum(add)), DstCounts: counts(block), Cause: cause})
	nodes.Free()
	return all
}

// linearNodes is linearGrad of rows that the ranks have nodes of; ok is false if they have not.
//
//	dy            x             gradient
//	S(0)          S(0)          R          the sum of nodes
//	S(last)       R             S(0)
//	R             S(last)       S(1)
//	R             R             R
func linearNodes(dy, x *Tensor) (grad *Tensor, ok bool) {
	if dy.NDim() < 2 || x.NDim() < 2 {
		return nil, false
	}
	axes := dy.nodesOf(dy.NDim()-1, pairwise.Least)
	if axes == 0 || x.nodesOf(x.NDim()-1, pairwise.Least) != axes || !slices.Equal(dy.Shape()[:dy.NDim()-1], x.Shape()[:x.NDim()-1]) {
		return nil, false
	}
	m, last := dy.spec.mesh, dy.NDim()-1
	places := m.Every(layout.Replicate())
	for axis := range places {
		a, b := dy.spec.placements[axis], x.spec.placements[axis]
		switch {
		case axes>>axis&1 != 0 || a.IsReplicate() && b.IsReplicate() || m.axes[axis].Size == 1:
		case a == layout.Shard(last) && b.IsReplicate():
			places[axis] = layout.Shard(0)
		case a.IsReplicate() && b == layout.Shard(last):
			places[axis] = layout.Shard(1)
		default:
			return nil, false
		}
	}
	s := m.shapeSpec("LinearGrad", []int{dy.Dim(-1), x.Dim(-1)}).with("LinearGrad", places)
	if m.outside() {
		return m.empty(s, x.DType()), true
	}
	node := tensor.MatMul(rows(dy.local), rows(x.local), true, false)
	return wrap(s, m.addNodes(axes, node, "LinearGrad")), true
}

// sumNodes is Sum over the first dimensions of a tensor whose ranks have nodes of it; ok is false
// if they have not.
func (x *Tensor) sumNodes(dims []int, keepdim bool) (sum *Tensor, ok bool) {
	mask := x.dims("Sum", dims)
	first := bits.TrailingZeros(^uint(mask)) // so many, if they are all
	if first == 0 || mask != 1<<first-1 || !x.shardsOnly(0) {
		return nil, false
	}
	axes := x.nodesOf(first, 1)
	if axes == 0 {
		return nil, false
	}
	m := x.spec.mesh
	s := m.shapeSpec("Sum", x.reducedShape(dims, keepdim))
	if m.outside() {
		return m.empty(s, x.DType()), true
	}
	list := make([]int, first)
	for d := range list {
		list[d] = d
	}
	return wrap(s, m.addNodes(axes, tensor.Sum(x.local, list, keepdim), "Sum")), true
}
