package layout

import (
	"math/bits"
	"time"
)

// An edge is what a single step from one node to another takes.
type edge struct {
	kind  Kind
	group uint64 // the step's axes, a bit each
	op    ReduceOp
	bytes int
	cost  time.Duration
}

// A class tells apart the ways in which a placement can change within one step.
type class uint8

const (
	unchanged class = iota
	moves           // neither side is partial
	reduces         // partial to R
	scatters        // partial to a shard
	spreads         // R to partial
	routes          // MaskPartial to R or to a shard
	never
)

// classify returns how a becomes b.
func classify(a, b Placement) class {
	switch {
	case a == b:
		return unchanged
	case !a.IsPartial() && !b.IsPartial():
		return moves
	case a.IsMask() && !b.IsPartial():
		return routes
	case a.IsPartial() && b.IsReplicate():
		return reduces
	case a.IsPartial() && b.IsShard():
		return scatters
	case a.IsReplicate():
		return spreads
	}
	return never
}

// outline returns what can be said of the edge from a to b from its placements
// alone: its class and the axes that change. ok is false if no single step leads
// from a to b.
func (p *planner) outline(a, b *node) (c class, changed uint64, ok bool) {
	first := -1
	for i := range a.places {
		ci := classify(a.places[i], b.places[i])
		if ci == unchanged {
			continue
		}
		if ci == never || first >= 0 && ci != c {
			return never, 0, false
		}
		if first >= 0 && (ci == reduces || ci == scatters) && a.places[i] != a.places[first] {
			return never, 0, false
		}
		if first >= 0 && ci == spreads && b.places[i] != b.places[first] {
			return never, 0, false
		}
		if first < 0 {
			first = i
		}
		c = ci
		changed |= 1 << i
	}
	switch c {
	case scatters, routes:
		ok = innermost(b, changed)
	case spreads:
		ok = p.masksAtOnce(a, b)
	default:
		ok = true
	}
	if !ok || !p.unmasksAtOnce(a, changed) {
		return never, 0, false
	}
	return c, changed, c != unchanged
}

// masksAtOnce reports whether the edge from a to b makes no MaskPartial, or makes all
// that the plan ends with of ids that are not masked yet: ids can be shifted once.
func (p *planner) masksAtOnce(a, b *node) bool {
	for i := range a.places {
		if a.places[i] == b.places[i] || !b.places[i].IsMask() {
			continue
		}
		for j := range a.places {
			if a.places[j].IsMask() || b.places[j].IsMask() != p.to.places[j].IsMask() {
				return false
			}
		}
		break
	}
	return true
}

// unmasksAtOnce reports whether a step that changes the given axes of a leaves the mask
// of a tensor whole: a plan that keeps its mask changes none of the masked axes, any
// other plan changes all of them together. What else happens to the rows would have
// to happen to the mask as well, so ids are masked in the last step.
func (p *planner) unmasksAtOnce(a *node, changed uint64) bool {
	var masked uint64
	for i := range a.places {
		if a.places[i].IsMask() {
			masked |= 1 << i
		}
	}
	if p.keeps {
		return masked&changed == 0
	}
	return masked&^changed == 0
}

// innermost reports whether no other axis shards what the given axes leave over:
// to the right of each of them every axis that shards the same dimension is
// one of them too.
func innermost(n *node, axes uint64) bool {
	for i, p := range n.places {
		if axes&(1<<i) == 0 || !p.IsShard() {
			continue
		}
		for j := i + 1; j < len(n.places); j++ {
			if axes&(1<<j) == 0 && n.places[j].Shards(int(p.dim)) {
				return false
			}
		}
	}
	return true
}

// edge completes an edge that outline found.
func (p *planner) edge(a, b *node, c class, changed uint64) edge {
	e := edge{group: changed}
	g := p.groupSize(changed)
	switch c {
	case reduces:
		e.kind, e.op = AllReduce, a.first(changed).op
		e.bytes = 2 * p.largest(a) * (g - 1) / g * p.elemBytes
	case scatters:
		e.kind, e.op = ReduceScatter, a.first(changed).op
		e.bytes = (g - 1) * p.largest(b) * p.elemBytes
	case routes:
		e.kind, e.op = Rows, Sum
		e.bytes = p.largest(b) * (g - 1) / g * p.elemBytes
	case spreads:
		e.kind, e.op = Partition, b.first(changed).op
		if b.first(changed).IsMask() {
			e.kind = Mask
		}
	case moves:
		lacking, same := p.lacking(a, b)
		e.bytes = lacking * p.elemBytes
		switch {
		case same:
			e.kind = Relabel
		case lacking == 0:
			e.kind = Slice
		default:
			e.kind, e.group = p.movement(a, b, changed)
			g = p.groupSize(e.group)
		}
	}
	if e.kind != Relabel {
		e.cost = p.costs.local(p.largest(b) * p.elemBytes)
	}
	if !e.kind.Local() {
		e.cost += p.costs.collective(g, e.bytes)
	}
	return e
}

// movement returns the kind and the group of a step between two nodes that are not
// partial on the axes that change.
func (p *planner) movement(a, b *node, changed uint64) (Kind, uint64) {
	gather, trade := true, true
	first := -1
	for i := range a.places {
		if changed&(1<<i) == 0 {
			continue
		}
		if first < 0 {
			first = i
		}
		x, y := a.places[i], b.places[i]
		gather = gather && x.IsShard() && y.IsReplicate()
		trade = trade && x.IsShard() && y.IsShard() && x.dim != y.dim &&
			x.dim == a.places[first].dim && y.dim == b.places[first].dim
	}
	switch {
	case gather && innermost(a, changed):
		return AllGather, changed
	case trade && innermost(a, changed) && innermost(b, changed):
		return AllToAll, changed
	}
	return Exchange, p.exchangeGroup(a, b)
}

// exchangeGroup returns the axes over which ranks have to trade: for each
// dimension, the axes that shard it in a, except those that shard it in the same way
// in both before any axis differs. Along every other axis all ranks hold the same.
func (p *planner) exchangeGroup(a, b *node) uint64 {
	var group uint64
	for d := range p.dims {
		common := true
		for i := range a.places {
			inA, inB := a.places[i].Shards(d), b.places[i].Shards(d)
			if (inA || inB) && a.places[i] != b.places[i] {
				common = false
			}
			if inA && !common {
				group |= 1 << i
			}
		}
	}
	return group
}

// groupSize returns the number of ranks in a group over the given axes.
func (p *planner) groupSize(axes uint64) int {
	g := 1
	for i, n := range p.sizes {
		if axes&(1<<i) != 0 {
			g *= n
		}
	}
	return g
}

// first returns the placement on the first of the given axes, of which there is one.
func (n *node) first(axes uint64) Placement { return n.places[bits.TrailingZeros64(axes)] }
