package topology

import (
	"context"
	"fmt"
)

// Halo fills the halo of this rank's block of an array that is divided among the ranks of g.
//
// block is a row-major array of the given shape. Its first dimensions are those of the grid;
// those after them, such as the components of a vector, are not divided. Along each dimension
// of the grid the first and the last width cells are the halo, and the others are this rank's
// own, at least width of them. Halo copies each cell of the halo from the rank that owns it,
// corners too. Beyond an open border no rank owns the cells, and they stay as they are; but
// a corner cell that a neighbour also has beyond that border is copied from the neighbour.
//
// Blocks may have different numbers of cells along a dimension, the same for all ranks with
// one coordinate there. A rank sends two messages for each dimension, so diagonal neighbours
// cost nothing more.
func Halo[T any](ctx context.Context, g *Grid, block []T, shape []int, width int) error {
	if err := checkHalo(g, len(block), shape, width); err != nil {
		return refuse(g, err)
	}
	if width == 0 {
		return nil
	}
	for d := range g.dims {
		s := slab{outer: product(shape[:d]), rows: shape[d], inner: product(shape[d+1:]), width: width}
		// Down: the first own rows become the last rows of the halo of the rank before.
		if err := shiftSlab(ctx, g, block, s, g.steps[2*d], width, shape[d]-width); err != nil {
			return err
		}
		if err := shiftSlab(ctx, g, block, s, g.steps[2*d+1], shape[d]-2*width, 0); err != nil {
			return err
		}
	}
	return nil
}

func checkHalo(g *Grid, length int, shape []int, width int) error {
	if len(shape) < len(g.dims) || width < 0 {
		return fmt.Errorf("topology: Halo of a block of shape %v and width %d on a grid of %v; "+
			"give a size for each dimension, and no negative width", shape, width, g.dims)
	}
	for d := range g.dims {
		if shape[d] < 3*width {
			return fmt.Errorf("topology: Halo of a block of shape %v: %d cells along dimension %d, of which %d are halo; "+
				"at least %d must be its own", shape, shape[d], d, 2*width, width)
		}
	}
	if n := product(shape); n != length {
		return fmt.Errorf("topology: Halo of a block of shape %v, which has %d elements: len(block) is %d; they must be equal", shape, n, length)
	}
	return nil
}

func product(sizes []int) int {
	n := 1
	for _, s := range sizes {
		n *= s
	}
	return n
}

// A slab is width consecutive rows of an array of outer × rows × inner elements.
type slab struct{ outer, rows, inner, width int }

// at returns the contiguous part, for one index outer, of the slab that begins with row first.
func at[T any](s slab, block []T, first, outer int) []T {
	return block[(outer*s.rows+first)*s.inner:][:s.width*s.inner]
}

// shiftSlab sends the slab that begins with row own, and receives the slab that begins with row
// halo.
func shiftSlab[T any](ctx context.Context, g *Grid, block []T, s slab, e exchange, own, halo int) error {
	if s.outer == 1 { // the slabs are contiguous
		return run(ctx, g.comm, []exchange{e}, func(int) []T { return at(s, block, own, 0) }, func(int) []T { return at(s, block, halo, 0) })
	}
	n, piece := s.outer*s.width*s.inner, s.width*s.inner
	packed, _ := g.scratch.([]T)
	if len(packed) < 2*n {
		packed = make([]T, 2*n)
		g.scratch = packed
	}
	out, in := packed[:n], packed[n:2*n]
	if e.to != None {
		for o := range s.outer {
			copy(out[o*piece:], at(s, block, own, o))
		}
	}
	if err := run(ctx, g.comm, []exchange{e}, func(int) []T { return out }, func(int) []T { return in }); err != nil || e.from == None {
		return err
	}
	for o := range s.outer {
		copy(at(s, block, halo, o), in[o*piece:])
	}
	return nil
}
