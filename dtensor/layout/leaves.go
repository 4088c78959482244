package layout

import (
	"slices"

	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/pairwise"
)

// CutAtLeaves returns places in which each rank has a node of a sum over tensor dimension dim, or two of
// them: see package pairwise. The dimension has n elements, a leaf of the sum leaf of them. Axes of places
// that shard it divide it equally, or one alone at leaves, as it does if it can: else into ShardSizes. Where ranks
// cannot have nodes, none of them shards it.
//
// nodes says how many leaves each node has, for each rank along the axes that shard the dimension, of which the
// last runs fastest: for one rank if there are none.
func CutAtLeaves(axes Axes, places []Placement, dim, n, leaf int) (cut []Placement, nodes [][]int) {
	return cutAtLeaves(axes, places, dim, n, leaf, 1)
}

// StayAtLeaves is CutAtLeaves, but leaves a dimension as it lies even where some ranks have nothing of it and others whole
// leaves. Those have no node.
func StayAtLeaves(axes Axes, places []Placement, dim, n, leaf int) (cut []Placement, nodes [][]int) {
	return cutAtLeaves(axes, places, dim, n, leaf, 0)
}

// cutAtLeaves is CutAtLeaves that leaves a dimension as it lies only if each rank has least of its elements or more.
func cutAtLeaves(axes Axes, places []Placement, dim, n, leaf, least int) (cut []Placement, nodes [][]int) {
	cut = slices.Clone(places)
	parts, divides := 1, []int(nil) // the axes of several ranks
	for axis, p := range places {
		if !p.Shards(dim) {
			continue
		}
		if cut[axis] = Shard(dim); axes.Size(axis) > 1 {
			parts *= axes.Size(axis)
			divides = append(divides, axis)
		}
	}
	if len(divides) == 1 && !places[divides[0]].IsCyclic() {
		as := places[divides[0]]
		sizes := make([]int, parts)
		for i := range sizes {
			_, sizes[i] = as.piece(n, parts, i)
		}
		if nodes = leafNodes(sizes, leaf); n > 0 && nodes != nil && slices.Min(sizes) >= least {
			cut[divides[0]] = as
			return cut, nodes
		}
	}
	leaves := n / max(leaf, 1)
	sizes := pairwise.Cut(leaves, parts)
	if sizes == nil || len(divides) > 1 && sizes[0] > sizes[parts-1] {
		for axis, p := range cut {
			if p.Shards(dim) {
				cut[axis] = Replicate()
			}
		}
		return cut, [][]int{{leaves}}
	}
	for i := range sizes {
		sizes[i] *= leaf
	}
	if sizes[0] > sizes[parts-1] {
		cut[divides[0]] = ShardSizes(dim, sizes...)
	}
	return cut, leafNodes(sizes, leaf)
}

// leafNodes returns how many leaves the nodes have of each part, of which sizes has the numbers of elements; nil if one has more than two,
// or is not cut at leaves.
func leafNodes(sizes []int, leaf int) (nodes [][]int) {
	lo := 0
	for _, size := range sizes {
		if size > 0 && size%leaf > 0 {
			return nil
		}
		its := pairwise.Nodes(lo, lo+size/max(leaf, 1))
		if len(its) > 2 {
			return nil
		}
		nodes, lo = append(nodes, its), lo+size/max(leaf, 1)
	}
	return nodes
}

// spineLeaf returns how many of the outermost index of a sum a leaf has that may not have fewer terms than
// Nodes says.
func (r *Rule) spineLeaf() int {
	inner := max(r.terms/max(r.size[r.spine], 1), 1)
	return pairwise.Leaf(r.size[r.spine], max(ints.DivUp(r.least, inner), 1))
}

// cut returns the row in which the ranks of an axis have one or two nodes of a sum; ok is false if they
// cannot, or if one would have half more than its share.
func (r *Rule) cut(ranks int) (row Row, ok bool) {
	if !r.nodes || r.spine == 0 || r.terms == 0 {
		return Row{}, false
	}
	leaf := r.spineLeaf()
	sizes := pairwise.Cut(r.size[r.spine]/leaf, ranks)
	if sizes == nil || sizes[0] == sizes[ranks-1] || 2*sizes[0]*leaf*ranks >= 3*r.size[r.spine] {
		return Row{}, false
	}
	for i := range sizes {
		sizes[i] *= leaf
	}
	return r.sharded(r.spine, ShardSizes(0, sizes...)), true
}

// nodesOf returns the nodes of a sum that rows of all axes leave, which bring input 0 to the layout in, as
// StayAtLeaves does, and the axes along which the ranks have them. ok is false if they do not do what Nodes says.
func (r *Rule) nodesOf(in Layout, rows []Row) (nodes [][]int, along []int, ok bool) {
	axes := in.Axes()
	for axis, row := range rows {
		if axes.Size(axis) == 1 || row.Out[0] != r.contract {
			continue
		}
		along = append(along, axis)
		for i, p := range row.In {
			if d, ok := p.Dim(); ok && r.in[i][d] != r.spine {
				return nil, nil, false
			}
		}
	}
	if len(along) == 0 {
		return nil, nil, len(r.in) > 1 || r.keepsTail(in)
	}
	if r.terms == 0 {
		return nil, nil, false
	}
	places := in.Placements()
	cut, nodes := StayAtLeaves(axes, places, slices.Index(r.in[0], r.spine), r.size[r.spine], r.spineLeaf())
	for _, axis := range along {
		if cut[axis] != places[axis] {
			return nil, nil, false
		}
	}
	return nodes, along, len(r.in) > 1 || r.keepsTail(in)
}

// OneEach reports whether nodes of StayAtLeaves are one of each rank, all of as many leaves: with Partial(Nodes) ranks
// hold such ones.
func OneEach(nodes [][]int) bool {
	return !slices.ContainsFunc(nodes, func(its []int) bool { return len(its) != 1 || its[0] != nodes[0][0] })
}
