package embedding

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/serve"
	"github.com/gorun-spmd/gorun/tensor"
)

// Export writes the rows of the table, in float32 and by their numbers, into a file that
// package serve answers lookups from, in place of what is at path. The first rank of the
// mesh writes it, at the path that it was given, and holds all rows meanwhile, of a table with a Store some at a time. Export is
// collective over the mesh, and its error the same on every rank of it; a rank outside does nothing.
func (t *Table) Export(ctx context.Context, path string) (err error) {
	defer fault.Locate(&err)
	_, _, err = export(ctx, "Export", t.weight.Mesh(), t.whole, path, false)
	return err
}

// ExportChanges writes the rows that have changed since the last Export or ExportChanges
// at path, as serve.Update does, and returns how many. It is collective as Export is.
func (t *Table) ExportChanges(ctx context.Context, path string) (changed int, err error) {
	defer fault.Locate(&err)
	changed, _, err = export(ctx, "ExportChanges", t.weight.Mesh(), t.whole, path, true)
	return changed, err
}

// An exported is the rows of a table with their keys, on the first rank.
type exported struct {
	dim  int
	rows iter.Seq2[int64, []float32]
	rest func() // is called when no more rows are wanted
}

func (t *Table) whole(op string) exported {
	t.needNumbers(op)
	if t.stored != nil {
		return t.stored.whole(op)
	}
	return wholeOf(nil, t.weight.GatherTo(0))
}

// wholeOf lists rows [n, D] under their keys, nil for their numbers; rows is nil but on the first rank.
func wholeOf(keys, rows *tensor.Tensor) exported {
	if rows == nil {
		return exported{}
	}
	return exported{rows.Dim(1), served(keys, rows, 0), func() {}}
}

// wholePiece is how many bytes of rows with a Store the first rank gathers at a time.
const wholePiece = 1 << 20

// whole reads the rows piece by piece: the first rank as it wants them, the others as long as it does.
func (s *stored) whole(op string) exported {
	mesh := s.weight.Mesh()
	var err error
	if s.rows != nil {
		err = s.rows.Sync()
	}
	agreeOnDisks(mesh, op, err)
	v, dim := s.weight.Dim(0), s.weight.Dim(1)
	n, first := max(1, wholePiece/(dim*s.weight.DType().Size())), 0
	next := func(wanted bool) (rows *tensor.Tensor, ok bool) {
		goOn := []int64{0}
		if wanted && first < v {
			goOn[0] = 1
		}
		mesh.Do(mesh.Comm(), comm.Call{Kind: comm.BroadcastKind, Dst: comm.Of(goOn), Cause: op + ": whether more is wanted"})
		if goOn[0] == 0 {
			return nil, false
		}
		rows = s.gather(op, first, min(n, v-first))
		first += n
		return rows, true
	}
	if mesh.Comm().Rank() != 0 {
		for ok := true; ok; {
			_, ok = next(true)
		}
		return exported{}
	}
	ended := false
	return exported{dim, func(yield func(int64, []float32) bool) {
		for !ended {
			at := int64(first)
			rows, ok := next(true)
			if ended = !ok; ended {
				return
			}
			for key, row := range served(nil, rows, at) {
				if !yield(key, row) {
					return
				}
			}
			rows.Free()
		}
	}, func() {
		if !ended {
			next(false)
		}
	}}
}

// gather returns n consecutive rows on the first rank.
func (s *stored) gather(op string, first, n int) *tensor.Tensor {
	mesh, l, width := s.weight.Mesh(), s.weight.Layout(), s.weight.Dim(1)
	counts := make([]int, mesh.Size())
	var mine *tensor.Tensor
	lo := 0 // of this rank
	for i := range counts {
		its := l.Held(l.Axes().Coord(i))
		from, to := its.Below(first), its.Below(first+n)
		_, columns := l.Span(l.Axes().Coord(i), 1)
		counts[i] = (to - from) * columns
		if i == mesh.Comm().Rank() {
			lo, mine = from, tensor.New(mesh.Device(), s.weight.DType(), to-from, columns)
		}
	}
	defer mine.Free()
	var err error
	if mine.Numel() > 0 {
		err = s.rows.ReadRows(0, lo, bytesOf(mine))
	}
	agreeOnDisks(mesh, op, err)
	call := comm.Call{Kind: comm.GatherVKind, Src: dtensor.BufferOf(mine), Cause: op + ": rows"}
	if mesh.Comm().Rank() != 0 {
		mesh.Do(mesh.Comm(), call)
		return nil
	}
	got, all := tensor.New(mesh.Device(), s.weight.DType(), n*width), tensor.New(mesh.Device(), s.weight.DType(), n, width)
	defer got.Free()
	call.Dst, call.DstCounts = dtensor.BufferOf(got), counts
	mesh.Do(mesh.Comm(), call)
	from, size := bytesOf(got), s.weight.DType().Size()
	for i := range counts {
		coord := l.Axes().Coord(i)
		column, columns := l.Span(coord, 1)
		from = spread(bytesOf(all)[column*size:], from, width*size, columns*size, l.Held(coord), first, first+n)
	}
	return all
}

// Export writes the keys and their rows; see Table.Export.
func (d *Dynamic) Export(ctx context.Context, path string) (err error) {
	defer fault.Locate(&err)
	_, _, err = export(ctx, "Export", d.mesh(), d.whole, path, false)
	return err
}

// ExportChanges writes the rows that have changed and the keys that have lost theirs since
// the last Export or ExportChanges at path, as serve.Update does, and returns how many.
func (d *Dynamic) ExportChanges(ctx context.Context, path string) (changed, removed int, err error) {
	defer fault.Locate(&err)
	return export(ctx, "ExportChanges", d.mesh(), d.whole, path, true)
}

func (d *Dynamic) whole(string) exported {
	var keys, rows *tensor.Tensor
	saved, free := d.Saved()
	defer free()
	for name, t := range saved {
		if name != savedKeys && name != savedWeight {
			continue
		}
		all := t.GatherTo(0)
		if all != nil { // else this is another rank
			all = tensor.Clone(all)
		}
		if name == savedKeys {
			keys = all
		} else {
			rows = all
		}
	}
	return wholeOf(keys, rows)
}

// export writes the rows that whole brings to the first rank.
func export(ctx context.Context, op string, mesh *dtensor.Mesh, whole func(op string) exported, path string, changes bool) (
	changed, removed int, err error) {
	if !mesh.Inside() {
		return 0, 0, nil
	}
	var done struct {
		Changed, Removed int
		Err              string
	}
	err = dtensor.Try(ctx, mesh, func() {
		all := whole(op)
		if mesh.Comm().Rank() != 0 {
			return
		}
		var failed error
		if changes {
			done.Changed, done.Removed, failed = serve.Update(path, all.rows)
		} else {
			failed = serve.Write(path, all.dim, all.rows)
		}
		all.rest()
		if failed != nil {
			done.Err = fmt.Sprintf("rank %d: %v", mesh.Comm().WorldRank(0), failed)
		}
	})
	if err == nil {
		done, err = comm.BroadcastObject(ctx, mesh.Comm(), done, 0)
	}
	if err == nil && done.Err != "" {
		err = errors.New(done.Err)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("embedding: %s: %w", op, err)
	}
	return done.Changed, done.Removed, nil
}

// served lists the rows [n, D] under their keys, nil for their numbers from first on.
func served(keys, rows *tensor.Tensor, first int64) iter.Seq2[int64, []float32] {
	values, width := tensor.ToSlice[float32](tensor.Cast(rows, tensor.Float32)), rows.Dim(1)
	var names []int64
	if keys != nil {
		names = tensor.ToSlice[int64](keys)
	}
	return func(yield func(int64, []float32) bool) {
		for i := range rows.Dim(0) {
			key := first + int64(i)
			if names != nil {
				key = names[i]
			}
			if !yield(key, values[i*width:(i+1)*width]) {
				return
			}
		}
	}
}
