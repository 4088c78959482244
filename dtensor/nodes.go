package dtensor

import (
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/pairwise"
	"github.com/gorun-spmd/gorun/tensor"
)

// rowsAreNodes reports whether with SameBits each rank has a node of sums over the rows of t, all
// but its last dimension: dimension 0 alone is divided, into equal parts, as many as a power of
// two.
func (t *Tensor) rowsAreNodes() bool {
	m, parts := t.spec.mesh, 1
	if !m.eng.same || !t.DType().Float() {
		return false
	}
	for axis, p := range t.spec.placements {
		switch {
		case p == layout.Shard(0):
			parts *= m.axes[axis].Size
		case !p.IsReplicate():
			return false
		}
	}
	return t.Dim(0)%parts == 0 && pairwise.Divides(product(t.spec.shape[:t.NDim()-1]), parts, 1)
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

// addNodes adds up what the members of a group hold, their nodes of a sum, in pairs: every
// one gets the whole sum, in the order in which one rank makes it.
func (m *Mesh) addNodes(g *comm.Comm, node *tensor.Tensor, cause string) *tensor.Tensor {
	parts, n := g.Size(), node.Numel()
	if parts == 1 {
		return node
	}
	if parts == 2 || parts*node.Bytes() <= fewNodes {
		nodes := tensor.New(m.eng.dev, node.DType(), parts, n)
		m.Do(g, comm.Call{Kind: comm.AllGatherKind, Dst: BufferOf(nodes), Src: BufferOf(node), Cause: cause})
		runtime.KeepAlive(node)
		return addRows(nodes).Reshape(node.Shape()...)
	}
	counts, size := make([]int, parts), (n+parts-1)/parts
	for r := range counts {
		counts[r] = max(0, min(size, n-r*size))
	}
	mine := m.foldNodes(g, node, counts, cause)
	all := tensor.New(m.eng.dev, node.DType(), node.Shape()...)
	m.Do(g, comm.Call{Kind: comm.AllGatherVKind, Dst: BufferOf(all), Src: BufferOf(mine), DstCounts: counts, Cause: cause})
	runtime.KeepAlive(mine)
	return all
}

// foldNodes adds up nodes as addNodes does, and leaves each member its part of the sum, as many
// elements as counts says: those of the first member come first in node.
func (m *Mesh) foldNodes(g *comm.Comm, node *tensor.Tensor, counts []int, cause string) *tensor.Tensor {
	parts, mine := g.Size(), counts[g.Rank()]
	nodes := tensor.New(m.eng.dev, node.DType(), parts, mine)
	m.Do(g, comm.Call{Kind: comm.AllToAllVKind, Dst: BufferOf(nodes), Src: BufferOf(node).Slice(0, sum(counts)),
		DstCounts: slices.Repeat([]int{mine}, parts), SrcCounts: counts, Cause: cause})
	runtime.KeepAlive(node)
	return addRows(nodes)
}

// addRows adds up rows in pairs, in place, and returns the sum, a view.
func addRows(nodes *tensor.Tensor) *tensor.Tensor {
	var sum pairwise.Fold[*tensor.Tensor]
	add := func(a, b *tensor.Tensor) *tensor.Tensor {
		tensor.AddTo(a, b)
		return a
	}
	for r := range nodes.Dim(0) {
		sum.Push(tensor.Narrow(nodes, 0, r, 1).Reshape(nodes.Dim(1)), add)
	}
	return sum.Sum(add)
}
