package dtensor

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// A Stored is this rank's rows of a tensor that lie on a disk, such as those of a table of
// package embedding that is larger than memory. A row is [1, …] in memory order.
type Stored interface {
	// ReadRows sets b to rows of this rank from row first on, as many as fit into b. The first
	// of this rank's rows is row 0.
	ReadRows(first int, b []byte) error
	// WriteRows sets rows of this rank to b.
	WriteRows(first int, b []byte) error
	// Sync returns an error if something that was written may be lost.
	Sync() error
}

// A StoredInTurn is a Stored of a tensor whose rows a layout.ShardCyclic deals out. Checkpoints need it, as their files have
// blocks of rows.
type StoredInTurn interface {
	Stored
	// InBlocks returns the rows that the layout's Blocks gives this rank, as they are now, until free is called. It is
	// collective over the mesh, and throws.
	InBlocks() (blocks Stored, free func())
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
func (noRows) InBlocks() (Stored, func())  { return noRows{}, func() {} }

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

// InBlocks returns a tensor of the rows of t, which lie on a disk, as they are now, with blocks of rows where t has them dealt out
// in turn, until free is called. It is collective over the mesh, and throws.
func (t *Tensor) InBlocks(op string) (blocks *Tensor, free func()) {
	s, ok := t.rows.stored.(StoredInTurn)
	if !ok {
		fault.Throw(fmt.Errorf("dtensor: %s: the rows of %v lie on a disk and are dealt out in turn, and %T has no method InBlocks; "+
			"give it one, or use Shard(0)", op, t, t.rows.stored))
	}
	rows, free := s.InBlocks()
	return t.Mesh().WrapStored(op, rows, "it is a copy for a checkpoint", t.DType(), t.Shape(), t.Layout().Blocks().Placements()...), free
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
