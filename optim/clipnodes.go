package optim

import (
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

// inNodes brings a gradient to a layout in which each rank has a node of the sum of its squares: its
// rows are divided along the axes that shard it, or along none if its ranks have no nodes of them.
func inNodes(g *dtensor.Tensor) *dtensor.Tensor {
	m := g.Mesh()
	places, parts := m.Every(layout.Replicate()), 1
	for axis, p := range g.Placements() {
		if p.IsShard() {
			places[axis] = layout.Shard(0)
			parts *= m.Axes()[axis].Size
		}
	}
	if g.NDim() == 0 || !pairwise.Divides(g.Dim(0), parts, squareLeaf(g.Dim(0))) {
		places = m.Every(layout.Replicate())
	}
	return g.Redistribute(places...)
}

// nodeOf returns the sum of this rank's squares of a gradient in the layout of inNodes.
func nodeOf(g *dtensor.Tensor) float64 {
	local := g.Local()
	if g.Numel() == 0 || g.NDim() == 0 {
		return tensor.SumSquares(local)[0]
	}
	var leaves []*tensor.Tensor
	for at, n := 0, squareLeaf(g.Dim(0)); at < local.Dim(0); at += n {
		leaves = append(leaves, tensor.Narrow(local, 0, at, n))
	}
	return pairwise.Sum(tensor.SumSquares(leaves...))
}

// nodeSquares is meshSquares with same bits. The ranks send their nodes of all gradients in one
// call, and each adds them up in pairs.
func nodeSquares(m *dtensor.Mesh, pieces []piece) float64 {
	var mine []float64
	var divided []*dtensor.Tensor
	for _, p := range pieces {
		if p.mesh == m {
			mine, divided = append(mine, nodeOf(p.same)), append(divided, p.same)
		}
	}
	all := mine
	ranks := 1
	if slices.ContainsFunc(divided, func(g *dtensor.Tensor) bool { return g.Local().Numel() < g.Numel() }) {
		ranks = m.Size()
		all = make([]float64, ranks*len(mine))
		m.Do(m.Comm(), comm.Call{Kind: comm.AllGatherKind, Dst: comm.Of(all), Src: comm.Of(mine), Cause: "ClipGradNorm"})
	}
	add := func(a, b float64) float64 { return a + b }
	sum := 0.0
	for k, g := range divided {
		var nodes pairwise.Fold[float64]
		for position := range ranks {
			if g.Layout().Owner(g.Layout().Axes().Coord(position)) {
				nodes.Push(all[position*len(mine)+k], add)
			}
		}
		sum += nodes.Sum(add)
	}
	return sum
}
