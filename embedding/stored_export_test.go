package embedding_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/internal/testenv"
	"github.com/gorun-spmd/gorun/serve"
	"github.com/gorun-spmd/gorun/tensor"
)

// A table on disks is exported as its twin in memory is, in several pieces, and so is what changes.
func TestExportStored(t *testing.T) {
	for _, ranks := range testenv.Fewer([]int{1, 2, 4}, 1) {
		for i, l := range []embedding.Layout{embedding.RowWise("a"), embedding.RowWise("a"), embedding.RowCyclic("a"), embedding.ColumnWise("a"),
			embedding.ColumnWiseOn("a", 0, ranks-1, ranks-1)} {
			dt := []tensor.DType{tensor.Float32, tensor.BFloat16}[i%2]
			path := filepath.Join(t.TempDir(), "users.table")
			meshtest.On(t, []int{ranks}, func(ctx context.Context, m *dtensor.Mesh) error {
				var table, twin *embedding.Table
				if err := dtensor.Try(ctx, m, func() {
					c := storedConfig(t.TempDir())
					c.Layout = l
					c.Dim, c.DType, c.Cache = 1<<11, dt, 256<<11*dt.Size() // 5 or 3 pieces
					table = embedding.NewTable(m, c)
					c.Store, c.Cache = "", 0
					twin = embedding.NewTable(m, c)
					dtensor.Keep(twin.Weight())
				}); err != nil {
					return err
				}
				if err := table.Export(ctx, path); err != nil {
					return err
				}
				if err := isServed(path, twin, 0); err != nil {
					return fmt.Errorf("%d ranks, %v: %w", ranks, dt, err)
				}
				rows, _ := table.Weight().Stored()
				if offset, _ := table.Weight().Offset(); offset[0] == 0 { // row 3 becomes zeros
					its := tensor.Narrow(twin.Weight().Local(), 0, 3, 1)
					tensor.Fill(its, 0)
					if err := rows.WriteRows(3, make([]byte, its.Bytes())); err != nil {
						return err
					}
				}
				changed, err := table.ExportChanges(ctx, path)
				if err != nil || changed != 1 {
					return fmt.Errorf("%d rows changed, %w", changed, err)
				}
				return isServed(path, twin, 1)
			})
		}
	}
}

// Each file operation of the second rank fails: all ranks return one error, and what was exported before is served.
func TestExportStoredOnAFailingDisk(t *testing.T) {
	for _, l := range []embedding.Layout{embedding.RowWise("a"), embedding.ColumnWise("a")} {
		exportOnAFailingDisk(t, l)
	}
}

func exportOnAFailingDisk(t *testing.T, l embedding.Layout) {
	path := filepath.Join(t.TempDir(), "users.table")
	failed := 0
	for at, done := 0, false; !done; at++ {
		files := &badFiles{folder: t.TempDir()}
		meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
			c := storedConfig(t.TempDir())
			if c.Layout = l; m.Comm().Rank() == 1 {
				c.OnFiles(files, 0)
			}
			table, err := trained(ctx, m, c)
			if err != nil {
				return err
			}
			if m.Comm().Rank() == 1 && at > 0 {
				files.mu.Lock()
				files.failAt = files.calls + at
				files.mu.Unlock()
			}
			err = table.Export(ctx, path)
			if _, ok := errors.AsType[*embedding.StoreError](err); err != nil && (!ok || at == 0) {
				return fmt.Errorf("failing at %d: %w", at, err)
			}
			if m.Comm().Rank() == 1 {
				if done = at > 0 && files.count() < files.failAt; err != nil { // two reads at once may fail once each, and are repeated
					failed++
				}
			}
			live, err := serve.Open(path)
			if err != nil {
				return err
			}
			return live.Close()
		})
		if t.Failed() {
			break
		}
	}
	if failed == 0 {
		t.Error("no failure was seen")
	}
}
