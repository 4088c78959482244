package embedding

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// A Layout says how the axes of a mesh divide a table. The zero Layout
// replicates it. Make one with RowWise, ColumnWise, Grid or Replicated.
type Layout struct {
	rows, columns []string
	sizes         []int // of the rows, for one axis; nil: torch.chunk
}

// Replicated keeps the whole table on every rank.
func Replicated() Layout { return Layout{} }

// RowWise divides the rows over the named axes, as torch.chunk does, in the
// order of the mesh.
func RowWise(axes ...string) Layout { return Layout{rows: axes} }

// RowWiseSizes divides the rows over one axis in blocks of the given sizes, one
// for each rank.
func RowWiseSizes(axis string, sizes ...int) Layout {
	return Layout{rows: []string{axis}, sizes: slices.Clone(sizes)}
}

// ColumnWise divides the features over the named axes.
func ColumnWise(axes ...string) Layout { return Layout{columns: axes} }

// Grid divides the rows over one axis and the features over another.
func Grid(rows, columns string) Layout {
	return Layout{rows: []string{rows}, columns: []string{columns}}
}

// Placements returns the layout as one placement for each axis of the mesh. It
// throws an *Error for an axis that the mesh has not, or that is named twice.
func (l Layout) Placements(mesh *dtensor.Mesh) []layout.Placement {
	p := make([]layout.Placement, len(mesh.Axes()))
	set := func(names []string, place layout.Placement) {
		for _, name := range names {
			axis, ok := mesh.Axis(name)
			if !ok {
				refuse("Layout", "mesh %v has no axis %q; use one of its names", mesh, name)
			}
			if !p[axis].IsReplicate() {
				refuse("Layout", "axis %q is named twice; name it for rows or for columns", name)
			}
			p[axis] = place
		}
	}
	set(l.rows, layout.ShardSizes(0, l.sizes...))
	set(l.columns, layout.Shard(1))
	return p
}

// A Config describes a table.
type Config struct {
	Name   string // in errors; may be empty
	Rows   int    // V
	Dim    int    // D
	Layout Layout
	// Key makes the initial values, float32: normal numbers by their global
	// index, the same for every mesh and layout.
	Key dtensor.Key
	// Std is their standard deviation; 0: 1.
	Std float64

	PaddingIdx      *int // see Options; its row starts as zeros
	MaxNorm         *float64
	NormType        *float64
	ScaleGradByFreq bool
}

// A Table is an embedding table on a mesh with the options of its lookups.
type Table struct {
	weight  *dtensor.Tensor
	options Options
}

// NewTable makes a table with random rows. It communicates nothing. It throws an
// *Error that names the field if the configuration makes no sense.
func NewTable(mesh *dtensor.Mesh, c Config) *Table {
	if c.Rows < 0 || c.Dim < 0 {
		refuse("NewTable", "table %q has %d rows of %d features; sizes are not negative", c.Name, c.Rows, c.Dim)
	}
	if c.Std == 0 {
		c.Std = 1
	}
	weight := dtensor.Normal(mesh, c.Key, 0, c.Std, []int{c.Rows, c.Dim}, c.Layout.Placements(mesh)...)
	t := TableOf(weight, Options{PaddingIdx: c.PaddingIdx, MaxNorm: c.MaxNorm, NormType: c.NormType, ScaleGradByFreq: c.ScaleGradByFreq, Table: c.Name})
	if c.PaddingIdx != nil {
		t.clearRow(t.options.check("NewTable", weight).padding)
	}
	return t
}

// TableOf makes a table of existing rows, [V, D] in any layout. It throws an
// *Error if the options do not fit.
func TableOf(weight *dtensor.Tensor, o Options) *Table {
	o.check("TableOf", weight)
	return &Table{weight: weight, options: o}
}

// Weight returns the rows, [V, D]: the parameter to train.
func (t *Table) Weight() *dtensor.Tensor { return t.weight }

// Options returns the options of the table's lookups.
func (t *Table) Options() Options { return t.options }

// Lookup returns the rows that ids name; see the function Lookup.
func (t *Table) Lookup(ids *dtensor.Tensor) *dtensor.Tensor { return Lookup(t.weight, ids, t.options) }

// String describes the table.
func (t *Table) String() string {
	name := t.options.Table
	if name == "" {
		name = "table"
	}
	return fmt.Sprintf("%s %v", name, t.weight)
}

// clearRow sets a row to zeros.
func (t *Table) clearRow(row int) {
	offset, inside := t.weight.Offset()
	local := t.weight.Local()
	if inside && row >= offset[0] && row < offset[0]+local.Dim(0) {
		tensor.Fill(tensor.Narrow(local, 0, row-offset[0], 1), 0)
	}
}
