package optim

import (
	"math"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/pairwise"
	"github.com/gorun-spmd/gorun/tensor"
)

// squareLeaves is how many leaves the sum of squares of a gradient has at most, with same bits: each
// some of its rows, dimension 0.
const squareLeaves = 16

// squareLeaf returns how many of n rows a leaf has.
func squareLeaf(n int) int { return pairwise.Leaf(n, (n+squareLeaves-1)/squareLeaves) }

// nodes are this rank's part of the sum of the squares of a tensor, with same bits.
type nodes struct {
	layout  layout.Layout // in which the ranks have nodes
	leaves  [][]int       // of the nodes of each part of the rows, see layout.CutAtLeaves
	squares []float64     // the sum of each node that this rank has
}

// newNodes adds up this rank's nodes of the squares of g.
func newNodes(g *dtensor.Tensor) nodes {
	same, leaves := inNodes(g)
	n := nodes{layout: same.Layout(), leaves: leaves}
	if m := g.Mesh(); m.Inside() {
		n.squares = nodesOf(same, leaves[n.part(m)])
	}
	return n
}

// inNodes brings a tensor to a layout in which each rank has nodes of the sum of its squares: its
// rows are divided along the axes that shard it, or along none if its ranks have no nodes of them.
func inNodes(g *dtensor.Tensor) (same *dtensor.Tensor, leaves [][]int) {
	m := g.Mesh()
	if g.NDim() == 0 {
		return g.Redistribute(m.Every(layout.Replicate())...), [][]int{{1}}
	}
	places := m.Every(layout.Replicate())
	for axis, p := range g.Placements() {
		switch {
		case p.Shards(0):
			places[axis] = p
		case p.IsShard():
			places[axis] = layout.Shard(0)
		}
	}
	places, leaves = layout.CutAtLeaves(g.Layout().Axes(), places, 0, g.Dim(0), squareLeaf(g.Dim(0)))
	return g.Redistribute(places...), leaves
}

// nodesOf returns the sum of this rank's squares of a tensor in the layout of inNodes, one for each node
// of so many leaves.
func nodesOf(g *dtensor.Tensor, its []int) (sums []float64) {
	local, at := g.Local(), 0
	if g.Numel() == 0 || g.NDim() == 0 {
		return tensor.SumSquares(local)
	}
	n := squareLeaf(g.Dim(0))
	for _, leaves := range its {
		var list []*tensor.Tensor
		for range leaves {
			list = append(list, tensor.Narrow(local, 0, at, n))
			at += n
		}
		sums = append(sums, pairwise.Sum(tensor.SumSquares(list...)))
	}
	return sums
}

// sumsOfNodes returns the sum of the squares of each of some tensors on one mesh. The ranks send their nodes of all of them in
// one call, and each adds them up in pairs.
func sumsOfNodes(cause string, m *dtensor.Mesh, list []nodes) []float64 {
	most, ranks := 1, 1
	for _, n := range list {
		for _, its := range n.leaves {
			most = max(most, len(its))
		}
		if len(n.leaves) > 1 {
			ranks = m.Size()
		}
	}
	mine := make([]float64, most*len(list)) // a node that a rank lacks is 0
	for k, n := range list {
		copy(mine[k*most:], n.squares)
	}
	all := mine
	if ranks > 1 {
		all = make([]float64, ranks*len(mine))
		m.Do(m.Comm(), comm.Call{Kind: comm.AllGatherKind, Dst: comm.Of(all), Src: comm.Of(mine), Cause: cause})
	}
	add := func(a, b float64) float64 { return a + b }
	sums := make([]float64, len(list))
	for k, n := range list {
		var fold pairwise.Fold[float64]
		part := 0
		for position := range ranks {
			if part == len(n.leaves) || !n.layout.Owner(n.layout.Axes().Coord(position)) {
				continue
			}
			for i, leaves := range n.leaves[part] {
				fold.PushNode(all[(position*len(list)+k)*most+i], leaves, add)
			}
			part++
		}
		sums[k] = fold.Sum(add)
	}
	return sums
}

// part returns which part of the rows this rank has.
func (n *nodes) part(m *dtensor.Mesh) (i int) {
	for axis, place := range n.layout.Placements() {
		if place.IsShard() {
			i = i*m.Axes()[axis].Size + m.Coord()[axis]
		}
	}
	return i
}

// pairwiseSquares is sumSquares with same bits: it adds up the squares of one parameter after the other, whatever
// ranks have them.
func pairwiseSquares(meshes []*dtensor.Mesh, params int, pieces []piece) (total float64) {
	sums := make([]float64, params)
	for _, m := range meshes {
		if !m.Inside() {
			continue
		}
		var numbers []int
		var list []nodes
		for _, p := range pieces {
			if p.mesh == m {
				numbers, list = append(numbers, p.param), append(list, p.nodes)
			}
		}
		for k, sum := range sumsOfNodes("ClipGradNorm", m, list) {
			sums[numbers[k]] = sum
		}
	}
	if areApart(meshes) {
		parent := wantOneParent(meshes)
		bits := make([]uint64, params) // of numbers not below 0, or NaN, and 0 where others have them: the largest is the number
		for i, sum := range sums {
			bits[i] = math.Float64bits(sum)
		}
		buf := comm.Of(bits)
		meshes[0].Do(parent, comm.Call{Kind: comm.AllReduceKind, Op: comm.Max, Dst: buf, Src: buf, Cause: "ClipGradNorm"})
		for i, b := range bits {
			sums[i] = math.Float64frombits(b)
		}
	}
	for _, sum := range sums {
		total += sum
	}
	return total
}
