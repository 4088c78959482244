package embedding

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
)

// A Layout says how the axes of a mesh divide a table. The zero Layout
// replicates it. Make one with RowWise, RowCyclic, ColumnWise, TableWise, Grid or
// Replicated.
type Layout struct {
	rows, columns []string
	sizes         []int // of the rows, for one axis; nil: torch.chunk
	on            []int // which ranks of the one axis have a part; nil: all
	cyclic        bool  // rows are dealt out in turn
}

// Replicated keeps the whole table on every rank: data-parallel.
func Replicated() Layout { return Layout{} }

// RowWise divides the rows over the named axes, as torch.chunk does, in the
// order of the mesh.
func RowWise(axes ...string) Layout { return Layout{rows: axes} }

// RowWiseSizes divides the rows over one axis in blocks of the given sizes, one
// for each rank.
func RowWiseSizes(axis string, sizes ...int) Layout {
	return Layout{rows: []string{axis}, sizes: slices.Clone(sizes)}
}

// RowWiseOn divides the rows over some ranks of an axis, a sub-group, as
// torch.chunk does over their number; the others have none. A rank that is named several
// times has as many parts, next to each other; parts are in the order of the ranks.
func RowWiseOn(axis string, ranks ...int) Layout {
	return Layout{rows: []string{axis}, on: slices.Sorted(slices.Values(ranks))}
}

// RowCyclic deals the rows out over an axis in turn: of n ranks, rank r has the rows r,
// r+n, r+2n, … Where ids are sorted by how often they are used, as vocabularies are, each
// rank has then as many of the frequent rows as the others, while the first of RowWise
// has nearly all of them.
func RowCyclic(axis string) Layout { return Layout{rows: []string{axis}, cyclic: true} }

// TableWise keeps the whole table on one rank of an axis.
func TableWise(axis string, rank int) Layout { return RowWiseOn(axis, rank) }

// ColumnWise divides the features over the named axes.
func ColumnWise(axes ...string) Layout { return Layout{columns: axes} }

// ColumnWiseOn divides the features over some ranks of an axis, a sub-group, as
// RowWiseOn does rows: ColumnWiseOn("tp", 0, 0, 1) gives two of three parts to rank 0.
func ColumnWiseOn(axis string, ranks ...int) Layout {
	return Layout{columns: []string{axis}, on: slices.Sorted(slices.Values(ranks))}
}

// Grid divides the rows over one axis and the features over another.
func Grid(rows, columns string) Layout {
	return Layout{rows: []string{rows}, columns: []string{columns}}
}

// Placements returns the layout of a table of rows times columns as one
// placement for each axis of the mesh. It throws an *Error for an axis that the
// mesh does not have, or that is named twice, and for a rank that the axis does not have.
func (l Layout) Placements(mesh *dtensor.Mesh, rows, columns int) []layout.Placement {
	p := make([]layout.Placement, len(mesh.Axes()))
	set := func(dim, size int, sizes []int, names []string) {
		for _, name := range names {
			axis, ok := mesh.Axis(name)
			if !ok {
				refuse("Layout", "mesh %v has no axis %q; use one of its names", mesh, name)
			}
			if !p[axis].IsReplicate() {
				refuse("Layout", "axis %q is named twice; name it for rows or for columns", name)
			}
			if l.on != nil {
				sizes = l.among(mesh.Axes()[axis], size)
			}
			p[axis] = layout.ShardSizes(dim, sizes...)
			if l.cyclic {
				p[axis] = layout.ShardCyclic()
			}
		}
	}
	set(0, rows, l.sizes, l.rows)
	set(1, columns, nil, l.columns)
	return p
}

// among divides size over the ranks of an axis that have a part.
func (l Layout) among(axis dtensor.Axis, size int) []int {
	sizes := make([]int, axis.Size)
	for i, n := range layout.ChunkSizes(size, len(l.on)) {
		switch r := l.on[i]; {
		case r < 0 || r >= axis.Size:
			refuse("Layout", "axis %q has no rank %d; use 0 to %d", axis.Name, r, axis.Size-1)
		default:
			sizes[r] += n
		}
	}
	return sizes
}

// String names the layout in words: "row-wise over tp".
func (l Layout) String() string {
	on := ""
	switch {
	case len(l.on) == 1 && len(l.rows) == 1:
		return fmt.Sprintf("table-wise on rank %d of %s", l.on[0], l.rows[0])
	case l.on != nil:
		on = fmt.Sprintf(" on ranks %v", l.on)
	}
	switch {
	case l.cyclic:
		return "row-wise in turn over " + strings.Join(l.rows, ",")
	case len(l.rows) > 0 && len(l.columns) > 0:
		return fmt.Sprintf("grid, rows over %s and columns over %s", strings.Join(l.rows, ","), strings.Join(l.columns, ","))
	case len(l.rows) > 0:
		return "row-wise over " + strings.Join(l.rows, ",") + on
	case len(l.columns) > 0:
		return "column-wise over " + strings.Join(l.columns, ",") + on
	}
	return "data-parallel"
}
