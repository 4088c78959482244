package dtensor

import (
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/pairwise"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// rowNodes returns the nodes that with SameBits each rank has of sums over the rows of t, all but its last
// dimension, as layout.StayAtLeaves does, and the axes along which they have them; nil if they have none: dimension 0 alone is
// divided, and at leaves.
func (t *Tensor) rowNodes() (nodes [][]int, axes axisSet) {
	s := t.spec
	if !s.mesh.eng.same || !t.DType().Float() || t.Numel() == 0 {
		return nil, 0
	}
	for axis, p := range s.placements {
		switch {
		case p.Shards(0):
			axes |= 1 << axis
		case !p.IsReplicate():
			return nil, 0
		}
	}
	n := s.shape[0]
	cut, nodes := layout.StayAtLeaves(s.layout.Axes(), s.placements, 0, n, pairwise.Leaf(n, 1))
	if !slices.Equal(cut, s.placements) {
		return nil, 0
	}
	return nodes, axes
}

// outputsAtLeaves returns w, the weight of a Linear of x, with its outputs cut at leaves, if one axis divides them otherwise and w has
// fewer inputs than x has rows. Its gradient and a loss add up over the outputs: the result, which is larger, needs not be moved for them.
func (w *Tensor) outputsAtLeaves(x *Tensor) *Tensor {
	s := w.spec
	if in := w.Dim(1); in == 0 || in >= x.Numel()/in {
		return w
	}
	for axis, p := range s.placements {
		if !p.IsReplicate() && (p != layout.Shard(0) || !x.spec.placements[axis].IsReplicate()) {
			return w
		}
	}
	cut, nodes := layout.CutAtLeaves(s.layout.Axes(), s.placements, 0, w.Dim(0), pairwise.Leaf(w.Dim(0), pairwise.Least))
	if len(nodes) < 2 || slices.Equal(cut, s.placements) {
		return w
	}
	return w.to(s.with("Linear", cut), "Linear")
}

// ofType returns nodes of a narrow type, which are float32, added up and rounded once; t itself if
// it is of type dt.
func (t *Tensor) ofType(dt tensor.DType) *Tensor {
	if t.DType() == dt {
		return t
	}
	return t.Reduced().Cast(dt)
}

// shards reports whether an axis of several ranks shards dimension d of t.
func (t *Tensor) shards(d int) bool {
	for axis, p := range t.spec.placements {
		if p.Shards(d) && t.spec.mesh.axes[axis].Size > 1 {
			return true
		}
	}
	return false
}

// nodes returns the axes, of more than one rank, along which ranks have nodes of sums.
func (s *spec) nodes() (axes axisSet) {
	if !s.partial {
		return 0
	}
	for i, p := range s.placements {
		if p == layout.Partial(layout.Nodes) && s.mesh.axes[i].Size > 1 {
			axes |= 1 << i
		}
	}
	return axes
}

// added returns the layout of s once the nodes along some axes are added up.
func (s *spec) added(axes axisSet) *spec {
	places := slices.Clone(s.placements)
	for i := range places {
		if axes.has(i) {
			places[i] = layout.Replicate()
		}
	}
	return s.with("nodes", places)
}

// fewNodes is up to how many bytes of nodes every rank takes those of all: they are then added
// in one call in place of two.
const fewNodes = 1 << 14

// AddNodes adds up the nodes of a sum that the members of a group hold: every one gets the whole sum, in the
// order in which one rank makes it. Those of a member follow each other in nodes, as many as it has in leaves, which says how
// many leaves each has, for every member: see layout.StayAtLeaves. The sum has the shape given.
func (m *Mesh) AddNodes(g *comm.Comm, nodes *tensor.Tensor, leaves [][]int, cause string, shape ...int) *tensor.Tensor {
	return m.sumNodes(g, nodes, leaves, reason{cause: cause}, shape)
}

func (m *Mesh) sumNodes(g *comm.Comm, nodes *tensor.Tensor, leaves [][]int, why reason, shape []int) *tensor.Tensor {
	parts, n := g.Size(), ints.Product(shape)
	if parts == 1 {
		return addRows(nodes.Reshape(len(leaves[0]), n), leaves).Reshape(shape...)
	}
	if all := len(slices.Concat(leaves...)); parts == 2 || all*n*nodes.DType().Size() <= fewNodes {
		all := tensor.New(m.eng.dev, nodes.DType(), all, n)
		m.GatherNodes(g, BufferOf(all), BufferOf(nodes), leaves, why.cause, why.facts)
		runtime.KeepAlive(nodes)
		return addRows(all, leaves).Reshape(shape...)
	}
	counts, size := make([]int, parts), ints.DivUp(n, parts)
	for r := range counts {
		counts[r] = max(0, min(size, n-r*size))
	}
	mine := m.foldNodes(g, nodes, leaves, counts, why)
	all := tensor.New(m.eng.dev, nodes.DType(), shape...)
	why.do(m, g, comm.Call{Kind: comm.AllGatherVKind, Dst: BufferOf(all), Src: BufferOf(mine), DstCounts: counts})
	runtime.KeepAlive(mine)
	return all
}

// GatherNodes gives every member of a group the nodes of a sum that all members hold, each as many in src as it has in
// leaves: see AddNodes. All are of one size. cause and facts are those of the call.
func (m *Mesh) GatherNodes(g *comm.Comm, dst, src comm.Buffer, leaves [][]int, cause string, facts uint32) {
	call := comm.Call{Kind: comm.AllGatherKind, Dst: dst, Src: src, Cause: cause, Facts: facts}
	if slices.ContainsFunc(leaves, func(its []int) bool { return len(its) != 1 }) {
		call.Kind, call.DstCounts = comm.AllGatherVKind, times(leaves, dst.Count/len(slices.Concat(leaves...)))
	}
	m.Do(g, call)
}

// addNodes is AddNodes of one node of each member.
func (m *Mesh) addNodes(g *comm.Comm, node *tensor.Tensor, why reason) *tensor.Tensor {
	return m.sumNodes(g, node, oneEach(g), why, node.Shape())
}

// oneEach says that each member of a group has one node.
func oneEach(g *comm.Comm) [][]int { return slices.Repeat([][]int{{1}}, g.Size()) }

// times returns n for each node of each member.
func times(leaves [][]int, n int) []int {
	counts := make([]int, len(leaves))
	for r := range counts {
		counts[r] = len(leaves[r]) * n
	}
	return counts
}

// foldNodes adds up nodes as AddNodes does, and leaves each member its part of the sum, as many
// elements as counts says: those of the first member come first in a node.
func (m *Mesh) foldNodes(g *comm.Comm, nodes *tensor.Tensor, leaves [][]int, counts []int, why reason) *tensor.Tensor {
	me, n := g.Rank(), ints.Sum(counts)
	has, mine := len(leaves[me]), counts[me]
	flat := nodes.Reshape(has * n)
	src, sent, got := flat, slices.Clone(counts), times(leaves, mine)
	stay := make([]*tensor.Tensor, 0, 2) // this member's part of its own nodes, where these do not go through the call
	if has != 1 {                        // what another member gets has to lie side by side
		src = tensor.New(m.eng.dev, nodes.DType(), has*(n-mine))
		defer src.Free()
		at, from := 0, 0
		for r, count := range counts {
			for k := range has {
				part := tensor.Narrow(flat, 0, k*n+from, count)
				if r == me {
					stay = append(stay, part)
					continue
				}
				tensor.Copy(tensor.Narrow(src, 0, at, count), part)
				at += count
			}
			from, sent[r] = from+count, has*count
		}
		sent[me], got[me] = 0, 0
	}
	all := tensor.New(m.eng.dev, nodes.DType(), ints.Sum(got))
	why.do(m, g, comm.Call{
		Kind: comm.AllToAllVKind, Dst: BufferOf(all), Src: BufferOf(src).Slice(0, ints.Sum(sent)), DstCounts: got, SrcCounts: sent,
	})
	runtime.KeepAlive(src)
	parts, at := make([]*tensor.Tensor, 0, len(slices.Concat(leaves...))), 0
	for r := range leaves {
		if r == me && has != 1 {
			parts = append(parts, stay...)
			continue
		}
		for range leaves[r] {
			parts, at = append(parts, tensor.Narrow(all, 0, at, mine)), at+mine
		}
	}
	return addAll(parts, leaves, stay)
}

// addRows adds up rows, nodes of so many leaves, in place, and returns the sum, a view.
func addRows(nodes *tensor.Tensor, leaves [][]int) *tensor.Tensor {
	rows := make([]*tensor.Tensor, nodes.Dim(0))
	for r := range rows {
		rows[r] = tensor.Narrow(nodes, 0, r, 1).Reshape(nodes.Dim(1))
	}
	return addAll(rows, leaves, nil)
}

// addAll adds up nodes of so many leaves, in place except for those that stay as they are, no two of which are a pair, and
// returns the sum.
func addAll(nodes []*tensor.Tensor, leaves [][]int, stay []*tensor.Tensor) *tensor.Tensor {
	var sum pairwise.Fold[*tensor.Tensor]
	add := func(a, b *tensor.Tensor) *tensor.Tensor {
		dst := a
		if slices.Contains(stay, a) {
			dst = b
		}
		tensor.BinaryTo(dst, kernel.OpAdd, a, b)
		return dst
	}
	for i, n := range slices.Concat(leaves...) {
		sum.PushNode(nodes[i], n, add)
	}
	return sum.Sum(add)
}
