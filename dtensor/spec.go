package dtensor

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// maxDims is the largest number of dimensions of a tensor.
const maxDims = kernel.MaxDims

// A spec is a layout.Layout with what it means for this rank, worked out once.
// A mesh interns its specs, so within a mesh two layouts are equal if their
// pointers are, and operators look their decisions up by these pointers. A
// spec is never modified.
type spec struct {
	mesh       *Mesh
	layout     layout.Layout
	shape      []int
	placements []layout.Placement
	local      []int  // the shape of this rank's shard; zeros on a rank outside
	offset     []int  // the global index of the shard's first element; nil outside
	numel      int    // of shape
	localNumel int    // of local
	partial    bool   // a placement is Partial or MaskPartial
	masked     bool   // a placement is MaskPartial
	cyclic     int    // the axis whose placement is ShardCyclic, -1: none
	grad       *spec  // what gradient returns; nil until asked for
	hash       uint32 // what facts returns; 0 until asked for
}

// maxSpecs bounds the intern table: a program whose shapes keep changing starts
// a new one now and then, with the tables that depend on it.
const maxSpecs = 1 << 14

// specOf returns the spec of a layout.
func (m *Mesh) specOf(l layout.Layout) *spec {
	if s, ok := m.specs[l]; ok {
		return s
	}
	s := &spec{mesh: m, layout: l, shape: l.Shape(), placements: l.Placements(), numel: l.Numel(), cyclic: l.Cyclic()}
	if m.coord != nil {
		s.local, s.offset = l.LocalShape(m.coord), l.Offset(m.coord)
	} else {
		s.local = make([]int, max(1, len(s.shape)))
	}
	s.localNumel = ints.Product(s.local)
	for _, p := range s.placements {
		s.partial = s.partial || p.IsPartial()
		s.masked = s.masked || p.IsMask()
	}
	if len(m.specs) >= maxSpecs {
		clear(m.specs)
		m.recent = recent{}
		m.rules.clear()
		m.plans.clear()
	}
	m.specs[l] = s
	m.tellSpec(s)
	return s
}

// newSpec returns the spec of a shape and placements, or the reason why there is none.
func (m *Mesh) newSpec(shape []int, placements []layout.Placement) (*spec, error) {
	if m == nil || m.specs == nil {
		return nil, errors.New("the mesh is nil; make one with NewMesh")
	}
	at := &m.recent[slotOf(shape, placements)]
	if s := *at; s != nil && slices.Equal(s.shape, shape) && slices.Equal(s.placements, placements) {
		return s, nil
	}
	l, err := layout.New(m.pure, shape, placements...)
	if err != nil {
		return nil, err
	}
	s := m.specOf(l)
	*at = s
	return s, nil
}

// mustSpec is newSpec for operators: it throws a *LayoutError.
func (m *Mesh) mustSpec(op string, shape []int, placements []layout.Placement) *spec {
	s, err := m.newSpec(shape, placements)
	if err != nil {
		fault.Throw(misfit(op, err))
	}
	return s
}

// shapeSpec returns the layout of a shape that replicates on every axis. It also
// stands for the shape in the key of a rule.
func (m *Mesh) shapeSpec(op string, shape []int) *spec {
	var p [maxAxes]layout.Placement
	return m.mustSpec(op, shape, p[:len(m.axes)])
}

// accepts returns why elements of type dt cannot have the layout, and what to do, or nil:
// Bool has no sum, average or product, integers no average.
func (s *spec) accepts(dt tensor.DType) error {
	if !s.partial {
		return nil
	}
	for axis, p := range s.placements {
		op, partial := p.Op()
		if !partial || p.IsMask() {
			continue
		}
		if err := commOp(op).Accepts(dt); err != nil {
			return fmt.Errorf("%v on axis %s: %w", p, s.mesh.axes[axis].Name, err)
		}
	}
	return nil
}

// want throws a *LayoutError unless elements of type dt can have the layout.
func (s *spec) want(op string, dt tensor.DType) {
	if !s.partial {
		return
	}
	if err := s.accepts(dt); err != nil {
		refuse(op, fmt.Sprintf("%v cannot be %v", dt, err), "", Operand{"result", s.String()})
	}
}

// with returns the layout of s with other placements.
func (s *spec) with(op string, placements []layout.Placement) *spec {
	return s.mesh.mustSpec(op, s.shape, placements)
}

// replicated returns the layout of s that replicates on every axis.
func (s *spec) replicated() *spec { return s.mesh.specOf(s.layout.Replicated()) }

// facts returns a hash of the layout and its mesh: what the ranks of a call must have the same.
func (s *spec) facts() uint32 {
	if s.hash == 0 {
		h := fnv.New32a()
		fmt.Fprint(h, s.layout.Axes(), s.layout)
		s.hash = h.Sum32()
	}
	return s.hash
}

// String prints the layout: "[4, 8] S(0),R".
func (s *spec) String() string { return s.layout.String() }

// gradient returns the layout of a gradient of a tensor with layout s: s
// itself, with Replicate where that is Partial.
func (s *spec) gradient() *spec {
	if s.grad == nil {
		p := s.layout.Placements()
		for i := range p {
			if !p[i].IsShard() {
				p[i] = layout.Replicate()
			}
		}
		s.grad = s.with("gradient", p)
	}
	return s.grad
}
