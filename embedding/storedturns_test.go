package embedding_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/internal/testenv"
)

// The blocks of rows that are dealt out in turn are those of a table in blocks, also where ranks have several pieces, or no rows.
func TestStoredInBlocks(t *testing.T) {
	for _, ranks := range testenv.Fewer([]int{1, 2, 3, 4}, 3) {
		for _, shape := range [][2]int{{902, 4096}, {3, 5}} {
			if shape[1] > 5 && (ranks == 1 || ranks == 4) {
				continue // it takes long
			}
			meshtest.On(t, []int{ranks}, func(ctx context.Context, m *dtensor.Mesh) error {
				return dtensor.Try(ctx, m, func() {
					padding := 2
					c := storedConfig(t.TempDir())
					c.Layout, c.Rows, c.Dim, c.PaddingIdx = embedding.RowCyclic("a"), shape[0], shape[1], &padding
					c.Cache = 64 * shape[0] * shape[1] * 4
					table := embedding.NewTable(m, c)
					c.Layout, c.Store, c.Cache = embedding.RowWise("a"), "", 0
					twin := embedding.NewTable(m, c).Weight().Local()
					blocks, free := table.Weight().InBlocks("test")
					defer free()
					if twin.Numel() == 0 {
						return
					}
					rows, _ := blocks.Stored()
					got, want := make([]byte, twin.Bytes()), unsafe.Slice((*byte)(twin.Ptr()), twin.Bytes())
					if err := rows.ReadRows(0, got); err != nil || !bytes.Equal(got, want) {
						panic(fmt.Sprintf("%d ranks, %v: the blocks differ, %v", ranks, shape, err))
					}
					runtime.KeepAlive(twin) // want is its memory
				})
			})
		}
	}
}

// Each file operation of the second rank fails while blocks are made: all ranks throw one error, and when the disk works again a
// try does.
func TestStoredInBlocksOnAFailingDisk(t *testing.T) {
	failed := 0
	for at, done := 1, false; !done; at++ {
		files := &badFiles{folder: t.TempDir()}
		meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
			c := storedConfig(t.TempDir())
			c.Layout = embedding.RowCyclic("a")
			if m.Comm().Rank() == 1 {
				c.OnFiles(files, 0)
			}
			table, err := trained(ctx, m, c)
			if err != nil {
				return err
			}
			if m.Comm().Rank() == 1 {
				files.mu.Lock()
				files.failAt = files.calls + at
				files.mu.Unlock()
			}
			inBlocks := func() {
				_, free := table.Weight().InBlocks("test")
				free()
			}
			err = dtensor.Try(ctx, m, inBlocks)
			if _, ok := errors.AsType[*embedding.StoreError](err); err != nil && (!ok || !strings.Contains(err.Error(), `rank 1: table "users"`)) {
				return fmt.Errorf("failing at %d: %w", at, err)
			}
			if m.Comm().Rank() == 1 {
				if done = files.count() < files.failAt; err != nil {
					failed++
				}
			}
			for range 2 { // the second attempt of the disk may fail in the second of them
				if err != nil {
					err = dtensor.Try(ctx, m, inBlocks)
				}
			}
			if err != nil {
				return fmt.Errorf("failing at %d, again: %w", at, err)
			}
			return nil
		})
		if t.Failed() {
			break
		}
	}
	if failed < 3 {
		t.Errorf("%d failures were seen", failed)
	}
}

// A row of a table in turn keeps its number in what a lookup refuses.
func TestStoredInTurnRows(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		c := storedConfig(t.TempDir())
		c.Layout = embedding.RowCyclic("a")
		var table *embedding.Table
		if err := dtensor.Try(ctx, m, func() { table = embedding.NewTable(m, c) }); err != nil {
			return err
		}
		err := dtensor.Try(ctx, m, func() { table.Lookup(meshtest.Place(m, []int64{3, 601}, []int{2}, shard0)) })
		if e, ok := errors.AsType[*embedding.IDError](err); !ok || e.ID != 601 {
			return fmt.Errorf("got %w, want id 601", err)
		}
		return nil
	})
}
