package dtensor

import (
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// Zeros returns a tensor of zeros (false for Bool). It communicates nothing.
// It throws a *LayoutError for placements that do not fit the shape and mesh,
// as all functions of this file do.
func Zeros(mesh *Mesh, dt tensor.DType, shape []int, placements ...layout.Placement) *Tensor {
	return filled(mesh.mustSpec("Zeros", shape, placements), dt, 0)
}

// Full returns a tensor whose elements are all v, rounded to dt.
func Full(mesh *Mesh, dt tensor.DType, v float64, shape []int, placements ...layout.Placement) *Tensor {
	return filled(mesh.mustSpec("Full", shape, placements), dt, v)
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
	return wrap(base, tensor.Arange(mesh.eng.dev, dt, start+base.offset[0], base.local[0])).to(s, "Arange")
}

// Distribute returns the tensor that every rank of the mesh holds as a whole,
// divided by the placements. It communicates nothing, and does not check that
// the ranks hold the same; see CheckLocals. On a rank outside only the type and
// the shape of whole are used. The result does not share whole's memory unless
// it is replicated.
func Distribute(mesh *Mesh, whole *tensor.Tensor, placements ...layout.Placement) *Tensor {
	s := mesh.mustSpec("Distribute", whole.Shape(), placements)
	if mesh.outside() {
		return mesh.empty(s, whole.DType())
	}
	t := wrap(s.replicated(), whole).to(s, "Distribute")
	if len(s.placements) > 0 && t.local != whole && whole.Numel() > 0 {
		t.local = tensor.Clone(t.local)
	}
	return t
}

// Full returns the whole tensor, on every rank of the mesh: Redistribute to
// Replicate. On a rank outside it is empty.
func (t *Tensor) Full() *tensor.Tensor { return t.to(t.spec.replicated(), "Full").local }
