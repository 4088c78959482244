package dtensor

import (
	"fmt"
	"math"
	"runtime"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// Zeros returns a tensor of zeros (false for Bool). It communicates nothing.
// It throws a *LayoutError for placements that do not fit the shape and mesh,
// as all functions of this file do.
func Zeros(mesh *Mesh, dt tensor.DType, shape []int, placements ...layout.Placement) *Tensor {
	return filled(mesh.mustSpec("Zeros", shape, placements), dt, 0)
}

// Full returns a tensor whose elements are all v, rounded to dt. It refuses what an integer type cannot hold, such as NaN.
func Full(mesh *Mesh, dt tensor.DType, v float64, shape []int, placements ...layout.Placement) *Tensor {
	s := mesh.mustSpec("Full", shape, placements)
	if dt != tensor.Bool && !dt.Holds(math.Trunc(v)) { // a Bool is true for any but 0
		refuse("Full", fmt.Sprintf("%v cannot be %v", dt, v), "give a number that it can hold, or another type")
	}
	return filled(s, dt, v)
}

// filled returns a tensor of layout s whose elements are all v.
func filled(s *spec, dt tensor.DType, v float64) *Tensor {
	base := s.gradient() // Replicate where s is Partial
	return wrap(base, tensor.Full(s.mesh.eng.dev, dt, v, base.local...)).to(s, "Full")
}

// Arange returns start, start+1, … start+n-1 in one dimension. It communicates
// nothing.
func Arange(mesh *Mesh, dt tensor.DType, start, n int, placements ...layout.Placement) *Tensor {
	s := mesh.mustSpec("Arange", []int{n}, placements)
	if mesh.outside() {
		return mesh.empty(s, dt)
	}
	base := s.gradient() // Replicate where s is Partial
	if base.cyclic >= 0 {
		base = base.replicated()
	}
	return wrap(base, tensor.Arange(mesh.eng.dev, dt, start+base.offset[0], base.local[0])).to(s, "Arange")
}

// Distribute returns the tensor that every rank of the mesh holds as a whole,
// divided by the placements. It communicates nothing, and checks that the ranks
// hold the same only with GORUN_CHECK=1, see CheckReplicas; DistributeFrom sends
// what one of them holds. On a rank outside only the type and the shape of whole
// are used. The result does not share whole's memory unless it is replicated.
func Distribute(mesh *Mesh, whole *tensor.Tensor, placements ...layout.Placement) *Tensor {
	wantWhole("Distribute", whole)
	s := mesh.mustSpec("Distribute", whole.Shape(), placements)
	if mesh.outside() {
		return mesh.empty(s, whole.DType())
	}
	t := wrap(s.replicated(), whole)
	CheckSame("dtensor: Distribute", []*Tensor{t}, func(int) string { return t.DType().String() + " " + t.spec.String() })
	t = t.to(s, "Distribute")
	if len(s.placements) > 0 && t.local != whole && whole.Numel() > 0 {
		t.local = tensor.Clone(t.local)
	}
	return t
}

func wantWhole(op string, whole *tensor.Tensor) {
	if whole == nil {
		refuse(op, "whole is nil on this rank", "give a tensor on every rank: its type and shape are used where its numbers are not")
	}
}

// DistributeFrom returns the tensor that the rank at one position of the mesh holds as
// a whole, divided by the placements: torch's distribute_tensor. On all other ranks
// only the type and the shape of whole are used. Every rank of the mesh calls it;
// each part goes from that rank to one other, and from there to those that hold the
// same. GatherTo is the way back.
func DistributeFrom(mesh *Mesh, position int, whole *tensor.Tensor, placements ...layout.Placement) *Tensor {
	const op = "DistributeFrom"
	wantWhole(op, whole)
	mesh.there(op)
	if position < 0 || position >= mesh.Size() {
		refuse(op, fmt.Sprintf("position %d is not in the mesh %v, which has 0 to %d", position, mesh, mesh.Size()-1), "")
	}
	s := mesh.mustSpec(op, whole.Shape(), placements)
	base := s.gradient().blocks() // Replicate where s is Partial
	if mesh.outside() {
		return mesh.empty(s, whole.DType())
	}
	var shards, repeats axisSet
	source, inLine := mesh.pure.Coord(position), true // inLine: this rank gets its part from the source itself
	for axis, p := range base.placements {
		if p.IsShard() {
			shards |= 1 << axis
		} else {
			repeats |= 1 << axis
			inLine = inLine && mesh.coord[axis] == source[axis]
		}
	}
	t := wrap(base, tensor.New(mesh.eng.dev, whole.DType(), base.local...))
	line, same := mesh.groupOf(shards), mesh.groupOf(repeats)
	if inLine {
		call := comm.Call{Kind: comm.ScatterVKind, Root: mesh.rankIn(shards, source), Dst: BufferOf(t.local),
			Src: comm.Buffer{DType: whole.DType()}, Cause: op}
		var flat *tensor.Tensor
		if mesh.all.Rank() == position {
			flat, call.SrcCounts = base.parts(whole, shards)
			call.Src = BufferOf(flat)
		}
		mesh.Do(line, call)
		runtime.KeepAlive(flat)
	}
	mesh.Do(same, comm.Call{Kind: comm.BroadcastKind, Root: mesh.rankIn(repeats, source), Dst: BufferOf(t.local), Cause: op})
	return t.to(s, op)
}

// rankIn returns the rank, in the group over set, of the rank at coord.
func (m *Mesh) rankIn(set axisSet, coord []int) int {
	rank := 0
	for axis, c := range coord {
		if set.has(axis) {
			rank = rank*m.axes[axis].Size + c
		}
	}
	return rank
}

// parts returns the parts of whole that the ranks of this rank's group over set hold, one
// after another, and their sizes.
func (s *spec) parts(whole *tensor.Tensor, set axisSet) (flat *tensor.Tensor, counts []int) {
	m := s.mesh
	flat = tensor.New(whole.Device(), whole.DType(), whole.Numel())
	at := 0
	for p := range m.Size() {
		coord := m.pure.Coord(p)
		if m.sharesLine(coord, set) {
			tensor.PackBox(flat, at, whole, s.layout.Offset(coord), s.layout.LocalShape(coord))
			counts = append(counts, s.layout.LocalNumel(coord))
			at += s.layout.LocalNumel(coord)
		}
	}
	return flat, counts
}

// sharesLine reports whether coord differs from this rank's only on the axes of set.
func (m *Mesh) sharesLine(coord []int, set axisSet) bool {
	for axis, c := range coord {
		if !set.has(axis) && c != m.coord[axis] {
			return false
		}
	}
	return true
}

// Full returns the whole tensor, on every rank of the mesh: Redistribute to
// Replicate. On a rank outside it is empty.
func (t *Tensor) Full() *tensor.Tensor {
	defer t.spec.mesh.Span("Full").End()
	return t.to(t.spec.replicated(), "Full").local
}
