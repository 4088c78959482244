package layout

import (
	"fmt"
	"slices"
)

// A Crossing moves a tensor from one mesh to another: other axes, other ranks, or
// both. It is one exchange over the union of the ranks in which each byte that a
// rank needs and does not hold reaches it once, straight from a rank that holds it.
// It is made of global facts alone and must not be modified.
type Crossing struct {
	From, To Layout
	// FromRanks and ToRanks are the world ranks at the positions of the two meshes.
	FromRanks, ToRanks []int
}

// Across returns the crossing between two layouts of the same shape, given the
// world rank at each position of either mesh.
//
// It returns an error if the shapes differ, a layout is partial or cyclic, a rank list is not
// as long as its mesh, or it names a rank twice. A partial tensor is reduced before it
// crosses, and made partial again after it has arrived.
func Across(from, to Layout, fromRanks, toRanks []int) (*Crossing, error) {
	if from.spec.Value().shape != to.spec.Value().shape {
		return nil, fmt.Errorf("layout: Across: from shape %v to shape %v: a crossing keeps the shape; reshape first", from.Shape(), to.Shape())
	}
	for _, side := range []struct {
		name   string
		layout Layout
		ranks  []int
	}{{"from", from, fromRanks}, {"to", to, toRanks}} {
		if side.layout.IsPartial() {
			return nil, fmt.Errorf("layout: Across: %s %v on mesh %v: a partial tensor does not cross; "+
				"redistribute it to Replicate or Shard within its mesh", side.name, side.layout, side.layout.Axes())
		}
		if side.layout.Cyclic() >= 0 {
			return nil, fmt.Errorf("layout: Across: %s %v on mesh %v: rows that are dealt out in turn do not cross; bring them to Blocks within "+
				"the mesh", side.name, side.layout, side.layout.Axes())
		}
		if n := side.layout.Axes().Count(); len(side.ranks) != n {
			return nil, fmt.Errorf("layout: Across: %d %s ranks for the %d positions of mesh %v; give one rank for each", len(side.ranks), side.name,
				n, side.layout.Axes())
		}
		sorted := slices.Sorted(slices.Values(side.ranks))
		for i := 1; i < len(sorted); i++ {
			if sorted[i] == sorted[i-1] {
				return nil, fmt.Errorf("layout: Across: rank %d is twice in the %s ranks %v; name each rank once", sorted[i], side.name, side.ranks)
			}
		}
	}
	return &Crossing{From: from, To: to, FromRanks: slices.Clone(fromRanks), ToRanks: slices.Clone(toRanks)}, nil
}

// Sends returns what a world rank gives others and itself, in the order of the
// receivers' positions. Peer is a world rank.
func (x *Crossing) Sends(rank int) []Transfer {
	me := slices.Index(x.FromRanks, rank)
	if me < 0 {
		return nil
	}
	coord := x.From.Axes().Coord(me)
	first := x.owner(coord)
	var list []Transfer
	for pos := range x.ToRanks {
		t, ok := intersect(x.From, x.To, coord, x.To.Axes().Coord(pos))
		if ok && x.source(first, pos) == me {
			t.Peer = x.ToRanks[pos]
			list = append(list, t)
		}
	}
	return list
}

// Recvs returns what a world rank gets from others and itself, in the order of the
// shards they hold. Peer is a world rank.
func (x *Crossing) Recvs(rank int) []Transfer {
	me := slices.Index(x.ToRanks, rank)
	if me < 0 {
		return nil
	}
	coord := x.To.Axes().Coord(me)
	var list []Transfer
	for pos := range x.FromRanks {
		holder := x.From.Axes().Coord(pos)
		if !x.From.Owner(holder) {
			continue
		}
		if t, ok := intersect(x.From, x.To, holder, coord); ok {
			t.Peer = x.FromRanks[x.source(holder, me)]
			list = append(list, t)
		}
	}
	return list
}

// owner returns the coordinate of the first holder of what the rank at coord holds.
func (x *Crossing) owner(coord []int) []int {
	first := slices.Clone(coord)
	for i := range first {
		if !x.From.Placement(i).IsShard() {
			first[i] = 0
		}
	}
	return first
}

// source returns the position in the from mesh of the rank that gives the receiver
// at a position of the to mesh its part of a shard, named by its first holder: the
// receiver itself if it holds the shard, else one of the holders in turn.
func (x *Crossing) source(first []int, receiver int) int {
	axes := x.From.Axes()
	if self := slices.Index(x.FromRanks, x.ToRanks[receiver]); self >= 0 && slices.Equal(x.owner(axes.Coord(self)), first) {
		return self
	}
	turn := receiver
	coord := slices.Clone(first)
	for i := len(coord) - 1; i >= 0; i-- {
		if !x.From.Placement(i).IsShard() {
			coord[i] = turn % axes.Size(i)
			turn /= axes.Size(i)
		}
	}
	return axes.Position(coord)
}
