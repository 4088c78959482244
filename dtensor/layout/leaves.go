package layout

import (
	"slices"

	"github.com/gorun-spmd/gorun/internal/pairwise"
)

// CutAtLeaves returns places in which each rank has a node of a sum over tensor dimension dim, or two of
// them: see package pairwise. The dimension has n elements, a leaf of the sum leaf of them. Axes of places
// that shard it divide it equally, or one alone at leaves, as it does if it can: else into ShardSizes. Where ranks
// cannot have nodes, none of them shards it.
//
// nodes says how many leaves each node has, for each rank along the axes that shard the dimension, of which the
// last runs fastest: for one rank if there are none.
func CutAtLeaves(axes []Axis, places []Placement, dim, n, leaf int) (cut []Placement, nodes [][]int) {
	cut = slices.Clone(places)
	parts, divides := 1, []int(nil) // the axes of several ranks
	for axis, p := range places {
		if !p.Shards(dim) {
			continue
		}
		if cut[axis] = Shard(dim); axes[axis].Size > 1 {
			parts *= axes[axis].Size
			divides = append(divides, axis)
		}
	}
	if len(divides) == 1 && !places[divides[0]].IsCyclic() {
		as := places[divides[0]]
		sizes := make([]int, parts)
		for i := range sizes {
			_, sizes[i] = as.piece(n, parts, i)
		}
		if nodes = nodesOf(sizes, leaf); nodes != nil {
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
	return cut, nodesOf(sizes, leaf)
}

// nodesOf returns how many leaves the nodes have of each part of so many elements; nil if one has none, or more than
// two, or is not cut at leaves.
func nodesOf(sizes []int, leaf int) (nodes [][]int) {
	lo := 0
	for _, size := range sizes {
		if size == 0 || size%leaf > 0 {
			return nil
		}
		its := pairwise.Nodes(lo, lo+size/leaf)
		if len(its) > 2 {
			return nil
		}
		nodes, lo = append(nodes, its), lo+size/leaf
	}
	return nodes
}
