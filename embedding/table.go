package embedding

import (
	"fmt"
	"iter"
	"time"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/rowstore"
	"github.com/gorun-spmd/gorun/tensor"
)

// A Config describes a table.
type Config struct {
	Name   string // in errors; may be empty
	Rows   int    // V
	Dim    int    // D
	Layout Layout
	// DType is the type of the rows: Float32, which 0 stands for, Float64, BFloat16 or Float16.
	// Rows of bfloat16 take half the memory and half the bytes of a lookup; sums of
	// them and of their gradients are made in float32 and rounded once.
	DType tensor.DType
	// Key makes the initial values: normal numbers of float32 by their global
	// index, the same for every mesh and layout, cast to DType. Tables of one Key
	// begin with the same numbers: give each its own.
	Key dtensor.Key
	// Std is their standard deviation; 0: 1.
	Std float64

	PaddingIdx      *int // see Options; its row starts as zeros
	MaxNorm         *float64
	NormType        *float64
	ScaleGradByFreq bool

	// Store is a folder on a disk of each rank's host that keeps the rows, so that the table may
	// be larger than memory; "": they are in memory. See the section on it in the package's text.
	Store string
	// Cache is how many bytes of rows are in memory if there is a Store, on all ranks together,
	// divided among them as the rows are, with room for 16 rows at least on each rank that has some. What an optimizer
	// remembers of these rows comes on top, ten bytes a row of the Cache, and four a row of the table.
	Cache int

	files    rowstore.Files // nil: the operating system's
	patience time.Duration  // with a disk; 0: that of rowstore
}

// A Table is an embedding table on a mesh with the options of its lookups.
type Table struct {
	weight  *dtensor.Tensor
	options Options
	fused   *fused // nil: gradients are returned
	stored  *stored
	keys    bool         // of a Dynamic
	state   []namedState // what Follow was given
}

// NewTable makes a table with random rows, which outlive a dtensor.Try around it. It communicates nothing, but with a Store whether
// all ranks could make their files: if not it throws a *StoreError. It throws an *Error that
// names the field if the configuration makes no sense.
func NewTable(mesh *dtensor.Mesh, c Config) *Table {
	if c.Rows < 0 || c.Dim < 0 {
		refuse("NewTable", "table %q has %d rows of %d features; sizes are not negative", c.Name, c.Rows, c.Dim)
	}
	if c.Std == 0 {
		c.Std = 1
	}
	if c.DType == 0 {
		c.DType = tensor.Float32
	}
	o := Options{PaddingIdx: c.PaddingIdx, MaxNorm: c.MaxNorm, NormType: c.NormType, ScaleGradByFreq: c.ScaleGradByFreq, Table: c.Name}
	switch {
	case c.Store != "":
		s := newStored(mesh, c)
		t := TableOf(s.weight, o)
		t.stored = s
		return t
	case c.Cache != 0:
		refuse("NewTable", "table %q: Cache is %d bytes, and there is no Store; give a folder", c.Name, c.Cache)
	}
	wide := dtensor.Normal(mesh, c.Key, 0, c.Std, []int{c.Rows, c.Dim}, c.Layout.Placements(mesh, c.Rows, c.Dim)...)
	weight := wide
	if c.DType != tensor.Float32 {
		weight = mesh.Wrap("NewTable", tensor.Cast(wide.Local(), c.DType), nil, false, wide.Shape(), wide.Placements()...)
		wide.Local().Free()
	}
	weight.Local().Persist()
	t := TableOf(weight, o)
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

// Weight returns the rows, [V, D]: the parameter to train. Of a table with a Store it has a
// layout and no elements.
func (t *Table) Weight() *dtensor.Tensor { return t.weight }

// Params lists the rows under the name that torch.nn.Embedding gives them, so that a
// Table is an nn.Layer.
func (t *Table) Params() iter.Seq2[string, *dtensor.Tensor] {
	return func(yield func(string, *dtensor.Tensor) bool) { yield("weight", t.weight) }
}

// Lookup returns the rows that ids name; see the function Lookup.
func (t *Table) Lookup(ids *dtensor.Tensor) *dtensor.Tensor {
	t.needNumbers("Lookup")
	return t.lookUp(ids)
}

// Bag returns one row for each bag of ids; see the function Bag.
func (t *Table) Bag(ids, offsets, weights *dtensor.Tensor, mode Mode) *dtensor.Tensor {
	t.needNumbers("Bag")
	return t.bag(ids, offsets, weights, BagOptions{Options: t.options, Mode: mode}, false)
}

// needNumbers refuses the table of a Dynamic, as Collection.Tables has it: ids would name rows there, and not keys.
func (t *Table) needNumbers(op string) {
	if t.keys {
		refuse(op, "the rows of table %q have keys, and no numbers that mean anything; call %s of its Dynamic", t.options.Table, op)
	}
}

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
