package embedding_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
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

// Ids that all ranks have prefetched are not exchanged again, those of the last two Prefetches, in one table and in a collection;
// all ranks exchange them where one has others.
func TestStoredExchangesOnce(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		c := storedConfig(t.TempDir())
		var table, twin *embedding.Table
		var all *embedding.Collection
		if err := dtensor.Try(ctx, m, func() {
			table = embedding.NewTable(m, c)
			all = embedding.NewCollection(m, embedding.CollectionTable{Config: c, Features: []string{"users"}})
			c.Store, c.Cache = "", 0
			twin = embedding.NewTable(m, c)
			dtensor.Keep(twin.Weight())
		}); err != nil {
			return err
		}
		exchanges := func(op string) int {
			return int(m.Comm().Stats().Causes[comm.Cause{Kind: comm.AllToAllVKind, Cause: op + ": ids"}].Calls)
		}
		batch := func(first, last int64) *dtensor.Tensor {
			return dtensor.Distribute(m, tensor.FromSlice(m.Device(), []int64{first, 301, first, 7, 9, 333, last, last}, 8), layout.Shard(0))
		}
		jagged := func(last int64) *embedding.Jagged {
			ids := [][]int64{{1, 301, 3}, {2, 302, last}}[m.Comm().Rank()]
			j, err := embedding.NewJagged(m, []string{"users"}, 4, []int{1, 2}, ids, nil, layout.Shard(0))
			if err != nil {
				panic(err)
			}
			return j
		}
		return dtensor.Try(ctx, m, func() {
			table.Prefetch(batch(1, 2))
			table.Prefetch(batch(401, 402))
			for i, step := range []struct {
				first, last int64
				again       int
			}{{1, 2, 0}, {401, 402, 0}, {1, 402, 1}, {1, 3, 1}, {4, 2, 1}, {1, 2, 0}} {
				before := exchanges("Lookup")
				got, want := floats(table.Lookup(batch(step.first, step.last))), floats(twin.Lookup(batch(step.first, step.last)))
				if n := exchanges("Lookup") - before - 1; n != step.again || !slices.Equal(got, want) { // the twin makes one
					panic(fmt.Sprintf("lookup %d makes %d exchanges of ids, want %d; %v, want %v", i, n, step.again, got, want))
				}
			}
			table.Prefetch(batch(5, 6))
			before := exchanges("Lookup")
			if table.Lookup(batch(1, 2)); exchanges("Lookup") != before+1 {
				panic("the batch of the third last Prefetch is still known")
			}
			all.Prefetch(jagged(9))
			for i, last := range []int64{9, 8} {
				before := exchanges("Bags")
				if all.Bags(jagged(last)); exchanges("Bags") != before+i {
					panic(fmt.Sprintf("bags %d make %d exchanges of ids", i, exchanges("Bags")-before))
				}
			}
		})
	})
}
