package dtensor

import (
	"cmp"
	"slices"

	"github.com/gorun-spmd/gorun/tensor"
)

// Gradients of parts of a tensor, such as those of Split, wait until all have arrived. They are then written side by side, once,
// where each alone would be a tensor of the whole size with zeros in it, and they a sum of these.

// A piece is a gradient that is dy in a part of its tensor and 0 elsewhere.
type piece struct {
	of         *Tensor // whose gradient it is
	s          *spec   // of the whole
	dy         *Tensor // Where it is divided along dim, each rank has its shard of the part
	dim, start int     // where the part begins
	at         int     // where it begins in this rank's shard
}

// accumulatePiece is accumulate of a piece.
func (t *Tensor) accumulatePiece(p piece) {
	n, eng := t.node, t.spec.mesh.eng
	switch {
	case n == nil || n.tape.closed:
	case n.second != nil && n.second.origin != nil: // t is another layout of it
		n.second.origin.accumulatePiece(p)
	case eng.same || eng.detect || eng.ops != nil || t.again():
		t.accumulate(whole([]piece{p}))
	default:
		if !fits(n.pieces, p) {
			n.joinPieces()
		}
		p.of = t
		n.pieces = append(n.pieces, p)
	}
}

// fits reports whether p can be written beside others: whether they are parts of one layout along one dimension and do not overlap.
func fits(others []piece, p piece) bool {
	return !slices.ContainsFunc(others, func(o piece) bool {
		return o.s != p.s || o.dim != p.dim || o.dy.DType() != p.dy.DType() ||
			o.start < p.start+p.dy.spec.shape[p.dim] && p.start < o.start+o.dy.spec.shape[p.dim]
	})
}

// joinPieces adds the pieces that have arrived at n to its gradient.
func (n *node) joinPieces() {
	if list := n.pieces; len(list) > 0 {
		n.pieces = nil
		list[0].of.accumulate(whole(list))
	}
}

// whole returns the sum of pieces that fit.
func whole(list []piece) *Tensor {
	slices.SortFunc(list, func(a, b piece) int { return cmp.Compare(a.start, b.start) })
	s, dim, dt := list[0].s, list[0].dim, list[0].dy.DType()
	if s.mesh.outside() {
		return s.mesh.empty(s, dt)
	}
	dx := tensor.New(list[0].dy.local.Device(), dt, s.local...)
	offset, zero := make([]int, len(s.local)), make([]int, len(s.local))
	sizes := slices.Clone(s.local)
	clear := func(end int) {
		if sizes[dim] = end - offset[dim]; sizes[dim] > 0 {
			tensor.ClearBox(dx, offset, sizes)
		}
	}
	for _, p := range list {
		n := p.dy.local.Dim(dim)
		if n == 0 {
			continue
		}
		clear(p.at)
		offset[dim], sizes[dim] = p.at, n
		tensor.CopyBox(dx, offset, p.dy.local, zero, sizes)
		offset[dim] += n
	}
	clear(s.local[dim])
	return wrap(s, dx)
}
