package layout

import "slices"

// A viewer finds the placements of a View axis by axis, from the left; those of the
// axes to the right are R until their turn comes.
type viewer struct {
	axes          Axes
	from, to      []int // the shapes of the input and of the result
	before, after []Placement
	// same reports whether the result of the view on what the rank at coord holds in
	// one layout is what it holds in the other.
	same func(in, out Layout, coord []int) bool
	// size returns how many elements of dimension d of the result the rank at coord
	// would hold, given that it holds all of them in out.
	size func(in, out Layout, coord []int, d int) int
}

// newViewer returns a viewer that has found no placements, of a view that brings the input to a shape.
func newViewer(in Layout, to []int) *viewer {
	n := in.Axes().Len()
	return &viewer{axes: in.Axes(), from: in.Shape(), to: to, before: make([]Placement, n), after: make([]Placement, n)}
}

// keep places a shard of the input on an axis, and what becomes of it in the result:
// a shard of one of the given dimensions, chunks if possible. It reports whether
// there is one; if not, the axis is left R.
func (v *viewer) keep(axis int, p Placement, dims []int) bool {
	v.before[axis] = p
	in, err := New(v.axes, v.from, v.before...)
	if err == nil {
		for _, d := range dims {
			v.after[axis] = Shard(d)
			if v.agrees(in) {
				return true
			}
		}
		for _, d := range dims {
			v.after[axis] = Replicate()
			out, err := New(v.axes, v.to, v.after...)
			if err != nil {
				break
			}
			sizes, ok := sizesAlong(v.axes, axis, func(coord []int) int { return v.size(in, out, coord, d) })
			if !ok {
				continue
			}
			v.after[axis] = ShardSizes(d, sizes...)
			if v.agrees(in) {
				return true
			}
		}
	}
	v.before[axis], v.after[axis] = Replicate(), Replicate()
	return false
}

// agrees reports whether the placements found so far give every rank its part of the
// result from its part of the input.
func (v *viewer) agrees(in Layout) bool {
	out, err := New(v.axes, v.to, v.after...)
	if err != nil {
		return false
	}
	coord := make([]int, 0, v.axes.Len())
	for pos := range v.axes.Count() {
		coord = v.axes.appendCoord(coord[:0], pos)
		if !v.same(in, out, coord) {
			return false
		}
	}
	return true
}

// sizesAlong returns f along an axis if it does not depend on the coordinates of the
// axes to its left; ok is false if it does. Axes to the right stay at 0.
func sizesAlong(axes Axes, axis int, f func(coord []int) int) (sizes []int, ok bool) {
	coord := make([]int, axes.Len())
	for pos := range axes.Count() {
		coord = axes.appendCoord(coord[:0], pos)
		if slices.ContainsFunc(coord[axis+1:], func(c int) bool { return c != 0 }) {
			continue
		}
		n := f(coord)
		switch i := coord[axis]; {
		case i == len(sizes):
			sizes = append(sizes, n)
		case sizes[i] != n:
			return nil, false
		}
	}
	return sizes, true
}
