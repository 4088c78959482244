package embedding

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/serve"
	"github.com/gorun-spmd/gorun/tensor"
)

// Export writes the rows of the table, in float32 and by their numbers, into a file that
// package serve answers lookups from, in place of what is at path. The first rank of the
// mesh writes it and holds all rows meanwhile. Export is collective over the mesh, and its
// error the same on every rank of it; a rank outside does nothing.
func (t *Table) Export(ctx context.Context, path string) error {
	_, _, err := export(ctx, "Export", t.weight.Mesh(), t.gathered, path, false)
	return err
}

// ExportChanges writes the rows that have changed since the last Export or ExportChanges
// at path, as serve.Update does, and returns how many. It is collective as Export is.
func (t *Table) ExportChanges(ctx context.Context, path string) (changed int, err error) {
	changed, _, err = export(ctx, "ExportChanges", t.weight.Mesh(), t.gathered, path, true)
	return changed, err
}

func (t *Table) gathered() (keys, rows *tensor.Tensor) { return nil, t.weight.GatherTo(0) }

// Export writes the keys and their rows; see Table.Export.
func (d *Dynamic) Export(ctx context.Context, path string) error {
	_, _, err := export(ctx, "Export", d.mesh(), d.gathered, path, false)
	return err
}

// ExportChanges writes the rows that have changed and the keys that have lost theirs since
// the last Export or ExportChanges at path, as serve.Update does, and returns how many.
func (d *Dynamic) ExportChanges(ctx context.Context, path string) (changed, removed int, err error) {
	return export(ctx, "ExportChanges", d.mesh(), d.gathered, path, true)
}

func (d *Dynamic) gathered() (keys, rows *tensor.Tensor) {
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
	return keys, rows
}

// export writes the rows that gather brings to the first rank.
func export(ctx context.Context, op string, mesh *dtensor.Mesh, gather func() (keys, rows *tensor.Tensor), path string, changes bool) (
	changed, removed int, err error) {
	if !mesh.Inside() {
		return 0, 0, nil
	}
	var done struct {
		Changed, Removed int
		Err              string
	}
	err = dtensor.Try(ctx, mesh, func() {
		keys, rows := gather()
		if mesh.Comm().Rank() != 0 {
			return
		}
		var failed error
		if changes {
			done.Changed, done.Removed, failed = serve.Update(path, served(keys, rows))
		} else {
			failed = serve.Write(path, rows.Dim(1), served(keys, rows))
		}
		if failed != nil {
			done.Err = failed.Error()
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

// served lists the rows [n, D] under their keys, nil for their numbers.
func served(keys, rows *tensor.Tensor) iter.Seq2[int64, []float32] {
	values, width := tensor.ToSlice[float32](tensor.Cast(rows, tensor.Float32)), rows.Dim(1)
	var names []int64
	if keys != nil {
		names = tensor.ToSlice[int64](keys)
	}
	return func(yield func(int64, []float32) bool) {
		for i := range rows.Dim(0) {
			key := int64(i)
			if names != nil {
				key = names[i]
			}
			if !yield(key, values[i*width:(i+1)*width]) {
				return
			}
		}
	}
}
