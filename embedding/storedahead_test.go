package embedding_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/internal/testenv"
	"github.com/gorun-spmd/gorun/tensor"
)

// The lookup of ids that were prefetched uses what Prefetch has found, and has the bits of a table in memory: of one batch ahead, of
// several, of one that was changed since, of one that comes twice, and of one whose rows have lost their slots again.
func TestStoredAfterPrefetch(t *testing.T) {
	for _, ranks := range testenv.Fewer([]int{1, 2, 4}, 2) {
		for _, place := range []layout.Placement{layout.Shard(0), layout.Replicate()} {
			for _, dt := range []tensor.DType{tensor.Int64, tensor.Int32} {
				meshtest.On(t, []int{ranks}, func(ctx context.Context, m *dtensor.Mesh) error {
					if err := prefetchedRun(ctx, m, t.TempDir(), place, dt, map[bool]embedding.Layout{
						true: embedding.RowWise("a"), false: embedding.RowCyclic("a")}[dt == tensor.Int64]); err != nil {
						return fmt.Errorf("%d ranks, ids %v of %v: %w", ranks, place, dt, err)
					}
					return nil
				})
			}
		}
	}
}

func prefetchedRun(ctx context.Context, m *dtensor.Mesh, folder string, place layout.Placement, dt tensor.DType, l embedding.Layout) error {
	var tables [2]*embedding.Table // on a disk and in memory
	rng := rand.New(rand.NewPCG(5, 5))
	batch := func() (ids *dtensor.Tensor) {
		list := make([]int64, 80)
		for i := range list {
			list[i] = int64(storedRows * rng.Float64() * rng.Float64())
		}
		flat := tensor.Cast(tensor.FromSlice(m.Device(), list, len(list)), dt)
		ids = dtensor.Distribute(m, flat, place)
		ids.Local().Persist()
		return ids
	}
	err := dtensor.Try(ctx, m, func() {
		c := storedConfig(folder)
		c.Layout = l
		tables[0] = embedding.NewTable(m, c)
		c.Store, c.Cache = "", 0
		tables[1] = embedding.NewTable(m, c)
		dtensor.Keep(tables[1].Weight())
		for _, table := range tables {
			fuseAdagrad(table)
		}
	})
	if err != nil {
		return err
	}
	var next, later *dtensor.Tensor
	for step := range 24 {
		var ids *dtensor.Tensor
		err := dtensor.Try(ctx, m, func() {
			if ids = next; ids == nil || step%5 == 4 { // another than was prefetched
				ids = batch()
			}
			if next = later; next == nil {
				next = batch()
			}
			tables[0].Prefetch(next)
			if later = nil; step%4 == 1 {
				later = batch()
				tables[0].Prefetch(later)
			}
			if step%7 == 3 { // others take the slots
				tables[0].Lookup(batch())
			}
		})
		if err != nil {
			return err
		}
		var losses [2]float64
		for i, table := range tables {
			v, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
				h := table.Lookup(ids)
				if step%6 == 5 {
					h = h.Add(table.Lookup(ids))
				}
				return h.Mul(h).Sum(nil, false)
			}, table.Param())
			if err == nil {
				err = dtensor.Try(ctx, m, func() { losses[i] = v.Full().Item() })
			}
			if err != nil {
				return err
			}
		}
		if losses[0] != losses[1] {
			return fmt.Errorf("step %d: the loss is %v, want %v", step, losses[0], losses[1])
		}
	}
	return dtensor.Try(ctx, m, func() {
		all := make([]int64, storedRows)
		for i := range all {
			all[i] = int64(i)
		}
		ids := dtensor.Distribute(m, tensor.FromSlice(m.Device(), all, len(all)), place)
		if got, want := wholeOf(tables[0].Lookup(ids)), wholeOf(tables[1].Lookup(ids)); !slices.Equal(got, want) {
			panic("at the end the rows are not those of the table in memory")
		}
	})
}

// wholeOf returns the elements of all ranks.
func wholeOf(x *dtensor.Tensor) []float32 { return tensor.ToSlice[float32](x.Full()) }
