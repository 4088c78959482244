package topology

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/ints"
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
		s := slab{outer: ints.Product(shape[:d]), rows: shape[d], inner: ints.Product(shape[d+1:]), width: width}
		before := edge{rank: g.neighbours[2*d], own: width, halo: 0}
		after := edge{rank: g.neighbours[2*d+1], own: shape[d] - 2*width, halo: shape[d] - width}
		if before.rank == g.comm.Rank() { // the only rank of a periodic dimension
			for o := range s.outer {
				copy(at(s, block, before.halo, o), at(s, block, after.own, o))
				copy(at(s, block, after.halo, o), at(s, block, before.own, o))
			}
			continue
		}
		// Every second rank begins with the rank after it, so that the pairs of a dimension swap in two turns.
		edges := []edge{before, after}
		if g.coords[d]%2 == 0 {
			slices.Reverse(edges)
		}
		for _, e := range edges {
			if e.rank == None {
				continue
			}
			err := swapSlab(ctx, g, block, s, e, e == after)
			if errors.Is(err, comm.ErrMismatch) && !errors.Is(err, comm.ErrAborted) {
				return fmt.Errorf("%w; Halo along dimension %d of a block of shape %v: "+
					"neighbours along it must have blocks of as many cells along all other dimensions", err, d, shape)
			}
			if err != nil {
				return err
			}
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
	if n := ints.Product(shape); n != length {
		return fmt.Errorf("topology: Halo of a block of shape %v, which has %d elements: len(block) is %d; they must be equal", shape, n, length)
	}
	return nil
}

// A slab is width consecutive rows of an array of outer × rows × inner elements.
type slab struct{ outer, rows, inner, width int }

// at returns the contiguous part, for one index outer, of the slab that begins with row first.
func at[T any](s slab, block []T, first, outer int) []T {
	return block[(outer*s.rows+first)*s.inner:][:s.width*s.inner]
}

// An edge is a rank that a block borders on, with the first row of the slab that it gets and of the halo
// that it fills.
type edge struct{ rank, own, halo int }

// swapSlab exchanges slabs with the rank of e. first says that this rank sends first where the backend cannot do both at once.
func swapSlab[T any](ctx context.Context, g *Grid, block []T, s slab, e edge, first bool) error {
	if s.outer == 1 { // the slabs are contiguous
		return swap(ctx, g.comm, e.rank, first, at(s, block, e.halo, 0), at(s, block, e.own, 0))
	}
	n, piece := s.outer*s.width*s.inner, s.width*s.inner
	packed, _ := g.scratch.([]T)
	if len(packed) < 2*n {
		packed = make([]T, 2*n)
		g.scratch = packed
	}
	out, in := packed[:n], packed[n:2*n]
	for o := range s.outer {
		copy(out[o*piece:], at(s, block, e.own, o))
	}
	if err := swap(ctx, g.comm, e.rank, first, in, out); err != nil {
		return err
	}
	for o := range s.outer {
		copy(at(s, block, e.halo, o), in[o*piece:])
	}
	return nil
}

// swap sends src to a rank and fills dst with what that rank sends in its swap.
func swap[T any](ctx context.Context, c *comm.Comm, rank int, first bool, dst, src []T) error {
	if _, ok := c.Internals().Backend().(backend.SendRecvBackend); ok {
		return comm.SendRecv(ctx, c, dst, rank, src, rank)
	}
	both := []exchange{{to: rank, from: rank, sendFirst: first}}
	return run(ctx, c, both, func(int) []T { return src }, func(int) []T { return dst })
}
