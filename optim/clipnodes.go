package optim

import (
	"math"
	"slices"

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

// inNodes brings a gradient to a layout in which each rank has nodes of the sum of its squares: its
// rows are divided along the axes that shard it, or along none if its ranks have no nodes of them. nodes
// are those of layout.CutAtLeaves.
func inNodes(g *dtensor.Tensor) (same *dtensor.Tensor, nodes [][]int) {
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
	places, nodes = layout.CutAtLeaves(g.Layout().Axes(), places, 0, g.Dim(0), squareLeaf(g.Dim(0)))
	return g.Redistribute(places...), nodes
}

// nodesOf returns the sum of this rank's squares of a gradient in the layout of inNodes, one for each node
// of so many leaves.
func nodesOf(g *dtensor.Tensor, nodes []int) (sums []float64) {
	local, at := g.Local(), 0
	if g.Numel() == 0 || g.NDim() == 0 {
		return tensor.SumSquares(local)
	}
	n := squareLeaf(g.Dim(0))
	for _, leaves := range nodes {
		var list []*tensor.Tensor
		for range leaves {
			list = append(list, tensor.Narrow(local, 0, at, n))
			at += n
		}
		sums = append(sums, pairwise.Sum(tensor.SumSquares(list...)))
	}
	return sums
}

// nodeSquares sets the sums of squares of the gradients on one mesh, with same bits, each at the number of its
// parameter. The ranks send their nodes of all gradients in one call, and each adds them up in pairs.
func nodeSquares(m *dtensor.Mesh, pieces []piece, sums []float64) {
	here := slices.DeleteFunc(slices.Clone(pieces), func(p piece) bool { return p.mesh != m })
	most, ranks := 1, 1
	for _, p := range here {
		for _, its := range p.nodes {
			most = max(most, len(its))
		}
		if len(p.nodes) > 1 {
			ranks = m.Size()
		}
	}
	mine := make([]float64, most*len(here)) // a node that a rank lacks is 0
	for k, p := range here {
		its := p.nodes[0]
		if len(p.nodes) > 1 {
			its = p.nodes[p.shard()]
		}
		copy(mine[k*most:], nodesOf(p.same, its))
	}
	all := mine
	if ranks > 1 {
		all = make([]float64, ranks*len(mine))
		m.Do(m.Comm(), comm.Call{Kind: comm.AllGatherKind, Dst: comm.Of(all), Src: comm.Of(mine), Cause: "ClipGradNorm"})
	}
	add := func(a, b float64) float64 { return a + b }
	for k, p := range here {
		var fold pairwise.Fold[float64]
		shard := 0
		for position := range ranks {
			l := p.same.Layout()
			if shard == len(p.nodes) || !l.Owner(l.Axes().Coord(position)) {
				continue
			}
			for i, leaves := range p.nodes[shard] {
				fold.PushNode(all[(position*len(here)+k)*most+i], leaves, add)
			}
			shard++
		}
		sums[p.param] = fold.Sum(add)
	}
}

// shard returns which part of the rows this rank has.
func (p *piece) shard() (i int) {
	m := p.mesh
	for axis, place := range p.same.Placements() {
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
		if m.Inside() {
			nodeSquares(m, pieces, sums)
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
