package layout

import (
	"fmt"
	"slices"
)

// validate checks normalised placements against the axes and the shape.
func validate(axes Axes, shape []int, placements []Placement) error {
	if err := validateSizes(axes, shape, placements); err != nil {
		return err
	}
	if err := validateCyclic(axes, placements); err != nil {
		return err
	}
	return validatePartials(axes, placements)
}

// validateCyclic checks that nothing else shards what a ShardCyclic deals out, and that
// nothing is masked beside it.
func validateCyclic(axes Axes, placements []Placement) error {
	at := slices.IndexFunc(placements, Placement.IsCyclic)
	if at < 0 {
		return nil
	}
	if p := placements[at]; p.dim != 0 {
		return fmt.Errorf("layout: New: %v on axis %s of mesh %v: rows are dealt out in turn, dimension 0; use Shard(%d)", p, axes.Name(at), axes,
			p.dim)
	}
	for i, p := range placements {
		if i != at && (p.Shards(0) || p.IsMask()) {
			return fmt.Errorf("layout: New: %v on axis %s and %v on axis %s of mesh %v: rows that are dealt out in turn have no other division and "+
				"no mask; use Shard(0)", placements[at], axes.Name(at), p, axes.Name(i), axes)
		}
	}
	return nil
}

// validateSizes checks every ShardSizes: one size a rank, none negative, and
// together what the axes to the left leave of the dimension.
func validateSizes(axes Axes, shape []int, placements []Placement) error {
	for i, p := range placements {
		if p.kind != sharded || p.list == "" {
			continue
		}
		n := axes.Size(i)
		if p.list.len() != n {
			return fmt.Errorf("layout: New: %v has %d sizes for the %d ranks of axis %s of mesh %v; give one size for each rank",
				p, p.list.len(), n, axes.Name(i), axes)
		}
		for j := range n {
			if p.list.at(j) < 0 {
				return fmt.Errorf("layout: New: %v on axis %s of mesh %v: size %d of rank %d is negative; use 0 or more",
					p, axes.Name(i), axes, p.list.at(j), j)
			}
		}
		for _, left := range remainders(axes, shape, placements[:i], int(p.dim)) {
			if sum := p.list.sum(); sum != left {
				return fmt.Errorf("layout: New: %v on axis %s of mesh %v: its sizes add up to %d, but a rank has %d of the %d elements of dim %d of "+
					"shape %v to split there; make them add up to %d",
					p, axes.Name(i), axes, sum, left, shape[p.dim], p.dim, shape, left)
			}
		}
	}
	return nil
}

// remainders returns the distinct sizes that the given axes leave of dimension dim.
func remainders(axes Axes, shape []int, placements []Placement, dim int) []int {
	sizes := []int{shape[dim]}
	for i, p := range placements {
		if !p.Shards(dim) {
			continue
		}
		var next []int
		for _, s := range sizes {
			for j := range axes.Size(i) {
				if _, length := p.piece(s, axes.Size(i), j); !slices.Contains(next, length) {
					next = append(next, length)
				}
			}
		}
		sizes = next
	}
	return sizes
}

// validatePartials checks that the reductions of all axes can be carried out in
// any order, for which an axis of one rank does not count, and that there is one
// mask at most.
func validatePartials(axes Axes, placements []Placement) error {
	for i, p := range placements {
		if !p.IsPartial() {
			continue
		}
		if p.op >= reduceOps {
			return fmt.Errorf("layout: New: axis %s of mesh %v has a Partial with an unknown reduction; use Sum, Avg, Prod, Min, Max or Nodes",
				axes.Name(i), axes)
		}
		if n := p.list.len(); p.IsMask() && (p.dim < 0 || int(p.dim) >= n) {
			return fmt.Errorf("layout: New: %#v on axis %s of mesh %v: offset dim %d is out of range for %d dimensions", p, axes.Name(i), axes,
				p.dim, n)
		}
		for j, q := range placements[:i] {
			if !q.IsPartial() {
				continue
			}
			if axes.Size(i) > 1 && axes.Size(j) > 1 && !p.op.commutes(q.op) {
				return fmt.Errorf("layout: New: %v on axis %s and %v on axis %s of mesh %v: their result depends on which is reduced first; "+
					"redistribute one of them to Replicate first",
					q, axes.Name(j), p, axes.Name(i), axes)
			}
			if p.IsMask() && q.IsMask() && p != q {
				return fmt.Errorf("layout: New: %#v on axis %s and %#v on axis %s of mesh %v: a tensor has one mask; "+
					"redistribute one of them to Replicate first",
					q, axes.Name(j), p, axes.Name(i), axes)
			}
		}
	}
	return nil
}
