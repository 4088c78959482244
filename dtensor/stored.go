package dtensor

import (
	"slices"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// A Stored is this rank's rows of a tensor that lie on a disk, such as those of a table of
// package embedding that is larger than memory. A row is [1, …] in memory order.
type Stored interface {
	// ReadRows sets b to rows of this rank, of which it has so many as fit into b. The first
	// of this rank's rows is row 0.
	ReadRows(first int, b []byte) error
	// WriteRows sets rows of this rank to b.
	WriteRows(first int, b []byte) error
	// Sync returns an error if something that was written may be lost.
	Sync() error
}

// WrapStored makes a tensor of rows that s has. It has a layout, and no rank has its elements
// in memory: checkpoints save and load it, and any operator on it throws a *tensor.UseError
// that says why. A rank outside the mesh may give nil.
func (m *Mesh) WrapStored(op string, s Stored, why string, dt tensor.DType, shape []int, placements ...layout.Placement) *Tensor {
	spec := m.mustSpec(op, shape, placements)
	t := wrap(spec, tensor.NewAbsent(m.eng.dev, why, dt, slices.Clone(spec.local)...))
	if m.outside() {
		s = noRows{}
	}
	t.rows = &elsewhere{stored: s}
	return t
}

// noRows are those of a rank outside the mesh.
type noRows struct{}

func (noRows) ReadRows(int, []byte) error  { return nil }
func (noRows) WriteRows(int, []byte) error { return nil }
func (noRows) Sync() error                 { return nil }

// elsewhere says where the rows of a tensor are, or what they are an excerpt of.
type elsewhere struct {
	stored  Stored // has the rows; nil: the tensor has them in memory
	excerpt string // see MarkExcerpt
}

// Stored returns what has the rows of t; ok is false if they are in memory.
func (t *Tensor) Stored() (s Stored, ok bool) {
	if t.rows == nil {
		return nil, false
	}
	return t.rows.stored, t.rows.stored != nil
}

// MarkExcerpt says that t has some rows of something larger, and that they change: of names
// it, for errors. Checkpoints refuse t, and so do optimizers that change every row.
func (t *Tensor) MarkExcerpt(of string) {
	s, _ := t.Stored()
	t.rows = &elsewhere{stored: s, excerpt: of} // t may share what it had
}

// ExcerptOf returns what t has some rows of, "" if it is whole.
func (t *Tensor) ExcerptOf() string {
	if t.rows == nil {
		return ""
	}
	return t.rows.excerpt
}
