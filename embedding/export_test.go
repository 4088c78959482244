package embedding_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/serve"
	"github.com/gorun-spmd/gorun/tensor"
)

// What is exported from any layout is served, and so is what changes.
func TestExport(t *testing.T) {
	for name, l := range map[string]embedding.Layout{"rows": embedding.RowWise("a"), "turns": embedding.RowCyclic("b"),
		"columns": embedding.ColumnWise("b"), "grid": embedding.Grid("a", "b"), "one rank": embedding.TableWise("b", 1),
		"replicated": embedding.Replicated()} {
		for _, dt := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
			path := filepath.Join(t.TempDir(), "items.table")
			meshtest.On(t, []int{2, 3}, func(ctx context.Context, m *dtensor.Mesh) error {
				table := embedding.NewTable(m, embedding.Config{Rows: 11, Dim: 5, Layout: l, DType: dt})
				if err := table.Export(ctx, path); err != nil {
					return err
				}
				if err := isServed(path, table, 0); err != nil {
					return fmt.Errorf("%s %v: %w", name, dt, err)
				}
				if offset, inside := table.Weight().Offset(); inside && offset[0] <= 3 && offset[0]+table.Weight().Local().Dim(0) > 3 {
					tensor.Fill(tensor.Narrow(table.Weight().Local(), 0, 3-offset[0], 1), 7)
				}
				changed, err := table.ExportChanges(ctx, path)
				if err != nil || changed != 1 {
					return fmt.Errorf("%s %v: %d rows changed, %v", name, dt, changed, err)
				}
				return isServed(path, table, 1)
			})
		}
	}
}

// isServed returns an error unless the file at path has the rows of a table.
func isServed(path string, table *embedding.Table, updates int) error {
	want := whole(table.Weight())
	live, err := serve.Open(path)
	if err != nil {
		return err
	}
	var failed error
	err = live.View(func(t *serve.Table) {
		if t.Len() != table.Weight().Dim(0) || t.Updates() != updates {
			failed = fmt.Errorf("%d rows and %d updates are served", t.Len(), t.Updates())
		}
		for key, row := range t.All() {
			for j, v := range row {
				if float64(v) != want[int(key)*t.Dim()+j] {
					failed = fmt.Errorf("row %d is served as %v", key, row)
				}
			}
		}
	})
	if err == nil {
		err = live.Close()
	}
	if err == nil {
		err = failed
	}
	return err
}

func TestExportDynamic(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users.table")
	meshtest.On(t, []int{3}, func(ctx context.Context, m *dtensor.Mesh) error {
		d := embedding.NewDynamic(m, embedding.DynamicConfig{Axis: "a", Dim: 3, Budget: 1 << 20, ExpireAfter: 2})
		insert := func(keys ...int64) { d.Insert(meshtest.Place(m, keys, []int{len(keys)}, replicate)) }
		check := func() error {
			keys := d.Keys()
			rows := rowsOf(m, d, keys)
			live, err := serve.Open(path)
			if err != nil {
				return err
			}
			defer live.Close()
			var failed error
			err = live.View(func(t *serve.Table) {
				if t.Len() != len(keys) {
					failed = fmt.Errorf("%d keys are served, want %d", t.Len(), len(keys))
				}
				for i, key := range keys {
					row, ok := t.Row(key)
					for j, v := range row {
						if float64(v) != rows[i][j] {
							ok = false
						}
					}
					if !ok {
						failed = fmt.Errorf("key %d is served as %v, want %v", key, row, rows[i])
					}
				}
			})
			if err == nil {
				err = failed
			}
			return err
		}
		insert(-5, 1<<60, 0)
		if err := d.Export(ctx, path); err != nil {
			return err
		}
		if err := check(); err != nil {
			return err
		}
		d.Advance()
		insert(0, 99)
		d.Advance() // -5 and 1<<60 expire
		changed, removed, err := d.ExportChanges(ctx, path)
		if err != nil || changed != 1 || removed != 2 {
			return fmt.Errorf("%d changed, %d removed, %v; want 1 and 2", changed, removed, err)
		}
		if err := check(); err != nil {
			return err
		}
		table := embedding.NewCollection(m, embedding.CollectionTable{Dynamic: d, Features: []string{"user"}}).Tables()[0]
		ids := meshtest.Place(m, []int64{0}, []int{1}, replicate)
		for i, err := range []error{
			table.Export(ctx, path),
			dtensor.Try(ctx, m, func() { table.Lookup(ids) }),
			dtensor.Try(ctx, m, func() { table.Bag(ids, ids, nil, embedding.Sum) }),
		} {
			if op := []string{"Export", "Lookup", "Bag"}[i]; err == nil || !strings.Contains(err.Error(), "call "+op+" of its Dynamic") {
				return fmt.Errorf("%s of a Dynamic's table: %v", op, err)
			}
		}
		if err := d.Export(ctx, filepath.Join(path, "none")); err == nil ||
			!strings.Contains(err.Error(), "rank 0: serve: Write: ") || !strings.Contains(err.Error(), "users.table") {
			return fmt.Errorf("an export to nowhere: %v", err)
		}
		return nil
	})
}
