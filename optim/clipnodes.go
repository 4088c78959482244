package optim

import (
	"math"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/pairwise"
	"github.com/gorun-spmd/gorun/tensor"
)

// leafOf returns how many of the n indices of a dimension a leaf of a sum of squares has, with same bits: there are up to 16,
// of which the last may be shorter.
func leafOf(n int) int { return ints.DivUp(n, 16) }

// nodes are this rank's part of the sum of the squares of a tensor, with same bits. Leaves of all dimensions make blocks.
// The squares of a block are added up element by element along dimension 0, then along the next; the blocks
// in pairs along the last dimension, then along the one before it. So no rank needs more than its own part, if that is
// cut at leaves.
type nodes struct {
	layout  layout.Layout
	leaves  [][][]int // of each dimension, for each part of it: how many leaves its nodes have
	squares []float64 // the sum of each node that this rank has, the last dimension fastest
}

// newNodes adds up this rank's nodes of the squares of g.
func newNodes(g *dtensor.Tensor) (n nodes) {
	n.layout = cutAtLeaves(g.Layout())
	n.divide()
	local := g.Redistribute(n.layout.Placements()...).Local()
	if !g.Mesh().Inside() {
		return n
	}
	var mine [][]int
	var leaf []int
	for d, i := range n.part(g.Mesh().Coord()) {
		mine, leaf = append(mine, n.leaves[d][i]), append(leaf, leafOf(g.Dim(d)))
	}
	switch {
	case len(mine) == 0:
		n.squares = tensor.SumSquares(local)
	case local.Numel() > 0:
		rows := local.Reshape(local.Dim(0), local.Numel()/local.Dim(0))
		n.squares = sumsOfBlocks(mine, leaf, local.Shape(), func(at, n int) []float64 {
			return tensor.ColumnSquares(tensor.Narrow(rows, 0, at, n))
		})
	}
	return n
}

// cutAtLeaves returns l with each dimension that is divided cut at leaves, those next to where it is cut: where several axes divide a
// dimension otherwise, along the first of them alone. A Partial and a tensor without elements are replicated.
func cutAtLeaves(l layout.Layout) layout.Layout {
	axes, places := l.Axes(), make([]layout.Placement, l.Axes().Len())
	with := func() layout.Layout {
		cut, err := l.With(places...)
		dtensor.Check(err)
		return cut
	}
	if l.Numel() == 0 {
		return with()
	}
	for axis, p := range l.Placements() {
		if p.IsCyclic() {
			p = layout.Shard(0)
		}
		if p.IsShard() {
			places[axis] = p
		}
	}
	for d, n := range l.Shape() {
		leaf, first := leafOf(n), -1
		if atLeaves(with(), d) {
			continue
		}
		for axis, p := range places {
			switch {
			case !p.Shards(d) || axes.Size(axis) == 1:
			case first < 0:
				first = axis
			default:
				places[axis] = layout.Replicate()
			}
		}
		cut, coord, at := with(), make([]int, axes.Len()), 0
		var sizes []int
		for i := range axes.Size(first) {
			coord[first] = i
			start, length := cut.Span(coord, d)
			end := min(n, (start+length+leaf/2)/leaf*leaf)
			if start+length == n {
				end = n
			}
			sizes, at = append(sizes, end-at), end
		}
		places[first] = layout.ShardSizes(d, sizes...)
	}
	return with()
}

// atLeaves reports whether a dimension is cut at leaves, if it is.
func atLeaves(l layout.Layout, d int) bool {
	for position := range l.Axes().Count() {
		start, length := l.Span(l.Axes().Coord(position), d)
		if leaf := leafOf(l.Dim(d)); length > 0 && start%leaf > 0 {
			return false
		}
	}
	return true
}

// divide sets the leaves. The dimensions before the last one that is divided have nodes of one leaf, which are whole only once
// those of the last are added up.
func (n *nodes) divide() {
	l := n.layout
	if l.Numel() == 0 {
		return
	}
	n.leaves = make([][][]int, l.NDim())
	divided := 0
	for d := range n.leaves {
		parts := 1
		for axis, p := range l.Placements() {
			if p.Shards(d) {
				parts *= l.Axes().Size(axis)
			}
		}
		if n.leaves[d] = make([][]int, parts); parts > 1 {
			divided = d
		}
	}
	for position := range l.Axes().Count() {
		coord := l.Axes().Coord(position)
		for d, i := range n.part(coord) {
			start, length := l.Span(coord, d)
			if length == 0 {
				continue
			}
			leaf := leafOf(l.Dim(d))
			first, end := start/leaf, ints.DivUp(start+length, leaf)
			if d < divided {
				n.leaves[d][i] = slices.Repeat([]int{1}, end-first)
			} else {
				n.leaves[d][i] = pairwise.Nodes(first, end)
			}
		}
	}
	for d := divided + 1; d < len(n.leaves); d++ {
		n.leaves[d][0] = []int{ints.Sum(n.leaves[d][0])}
	}
}

// part returns which part of each dimension the rank at a coordinate has.
func (n *nodes) part(coord []int) []int {
	parts := make([]int, len(n.leaves))
	for axis, place := range n.layout.Placements() {
		if d, ok := place.Dim(); ok {
			parts[d] = parts[d]*n.layout.Axes().Size(axis) + coord[axis]
		}
	}
	return parts
}

// sumsOfBlocks returns the sums of the nodes whose leaves along each dimension of some numbers, [shape], nodes lists; a leaf has leaf
// indices. rows returns the sum over n rows of them, dimension 0.
func sumsOfBlocks(nodes [][]int, leaf, shape []int, rows func(at, n int) []float64) (sums []float64) {
	add := func(a, b []float64) []float64 {
		addTo(a, b)
		return a
	}
	at := 0
	for _, leaves := range nodes[0] {
		var fold pairwise.Fold[[]float64]
		for range leaves {
			n := min(leaf[0], shape[0]-at)
			row := rows(at, n)
			at += n
			if len(shape) > 1 {
				row = sumsOfBlocks(nodes[1:], leaf[1:], shape[1:], func(at, n int) []float64 { return sumOfRows(row, len(row)/shape[1], at, n) })
			}
			fold.Push(row, add)
		}
		sums = append(sums, fold.Sum(add)...)
	}
	return sums
}

// sumOfRows returns the sum of n of the rows of x from row at on; a row has width numbers.
func sumOfRows(x []float64, width, at, n int) []float64 {
	sum := make([]float64, width)
	if width == 1 {
		for _, v := range x[at:][:n] {
			sum[0] += v
		}
		return sum
	}
	for i := range n {
		addTo(sum, x[(at+i)*width:][:width])
	}
	return sum
}

func addTo(dst, src []float64) {
	for i, v := range src {
		dst[i] += v
	}
}

// sumsOfNodes returns the sum of the squares of each of some tensors on one mesh. The ranks send their nodes of all of them in
// one call, which has the cause and what else ranks compare, and each adds them up in pairs.
func sumsOfNodes(call comm.Call, m *dtensor.Mesh, list []nodes) []float64 {
	var mine []float64
	at, ranks := make([]int, len(list)), 1
	for k, n := range list {
		at[k] = len(mine)
		width := 1 // of the rank that has the most nodes
		for _, parts := range n.leaves {
			most := 0
			for _, its := range parts {
				most = max(most, len(its))
			}
			if width *= most; len(parts) > 1 {
				ranks = m.Size()
			}
		}
		mine = append(mine, append(slices.Clone(n.squares), make([]float64, width-len(n.squares))...)...)
	}
	all := mine
	if ranks > 1 {
		all = make([]float64, ranks*len(mine))
		call.Kind, call.Dst, call.Src = comm.AllGatherKind, comm.Of(all), comm.Of(mine)
		m.Do(m.Comm(), call)
	}
	sums := make([]float64, len(list))
	for k, n := range list {
		numbers := map[int][]float64{} // of each part of the tensor
		for position := range ranks {
			if coord := n.layout.Axes().Coord(position); n.layout.Owner(coord) {
				part := 0
				for d, i := range n.part(coord) {
					part = part*len(n.leaves[d]) + i
				}
				numbers[part] = all[position*len(mine)+at[k]:]
			}
		}
		sums[k] = foldNodes(n.leaves, numbers, 0, 0)
	}
	return sums
}

// foldNodes adds up the nodes of the dimensions that leaves has, of one part of those before and one node of each of them.
func foldNodes(leaves [][][]int, numbers map[int][]float64, part, node int) float64 {
	if len(leaves) == 0 {
		return numbers[part][node]
	}
	var fold pairwise.Fold[float64]
	add := func(a, b float64) float64 { return a + b }
	for i, its := range leaves[0] {
		for k, n := range its {
			fold.PushNode(foldNodes(leaves[1:], numbers, part*len(leaves[0])+i, node*len(its)+k), n, add)
		}
	}
	return fold.Sum(add)
}

// pairwiseSquares returns the sum of the squares of each parameter's gradient, with same bits.
func pairwiseSquares(limit clip, meshes []*dtensor.Mesh, params int, pieces []piece) (sums []float64) {
	sums = make([]float64, params)
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
		for k, sum := range sumsOfNodes(limit.call(), m, list) {
			sums[numbers[k]] = sum
		}
	}
	if areApart(meshes) {
		parent := wantOneParent(meshes)
		all := make([]uint64, params) // of numbers not below 0, or NaN, and 0 where others have them: the largest is the number
		for i, sum := range sums {
			all[i] = math.Float64bits(sum)
		}
		allReduce(meshes[0], parent, comm.Max, limit.call(), all)
		for i, b := range all {
			sums[i] = math.Float64frombits(b)
		}
	}
	return sums
}
