package embedding_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/internal/testenv"
)

// TestAllocations bounds how often a lookup allocates on Go's heap, on all ranks
// together, alone and as a step: with the sum of its result and its gradient. What
// it allocates there does not grow with the ids.
func TestAllocations(t *testing.T) {
	const rows, width, bags = 64, 8, 8
	lookup := func(o embedding.Options) func(w, x, starts *dtensor.Tensor) *dtensor.Tensor {
		return func(w, x, _ *dtensor.Tensor) *dtensor.Tensor { return embedding.Lookup(w, x, o) }
	}
	as := func(to layout.Placement) func(w, x, starts *dtensor.Tensor) *dtensor.Tensor {
		return func(w, x, _ *dtensor.Tensor) *dtensor.Tensor {
			return embedding.LookupAs(w, x, embedding.Options{}, to)
		}
	}
	bag := func(mode embedding.Mode) func(w, x, starts *dtensor.Tensor) *dtensor.Tensor {
		return func(w, x, starts *dtensor.Tensor) *dtensor.Tensor {
			return embedding.Bag(w, x, starts, nil, embedding.BagOptions{Mode: mode})
		}
	}
	plain, padded := embedding.Options{}, embedding.Options{PaddingIdx: new(3)}
	for _, c := range []struct {
		name        string
		ranks       int
		weight, ids layout.Placement
		f           func(w, x, starts *dtensor.Tensor) *dtensor.Tensor
		alone, step float64
		grows       bool // to reduce a MaskP tensor an owner of each id is noted
	}{
		{"one rank", 1, shard0, replicate, lookup(plain), 14, 64, false},
		{"one rank, padding", 1, shard0, replicate, lookup(padded), 14, 74, false},
		{"row-wise", 2, shard0, replicate, lookup(plain), 42, 184, true},
		{"row-wise to Replicate", 2, shard0, replicate, as(replicate), 72, 168, false},
		{"row-wise to Shard", 2, shard0, replicate, as(shard0), 76, 218, false},
		{"row-wise, ids sharded", 2, shard0, shard0, lookup(plain), 78, 202, false},
		{"column-wise", 2, shard1, replicate, lookup(plain), 30, 142, false},
		{"column-wise to Replicate", 2, shard1, replicate, as(replicate), 60, 154, false},
		{"data-parallel", 2, replicate, shard0, lookup(plain), 38, 186, false},
		{"sums of bags", 2, shard0, replicate, bag(embedding.Sum), 78, 188, false},
		{"means of bags", 2, shard0, replicate, bag(embedding.Mean), 80, 192, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			meshtest.On(t, []int{c.ranks}, func(ctx context.Context, m *dtensor.Mesh) error {
				m.CheckReplicas(false) // what the checks allocate is not counted
				w := dtensor.Normal(m, dtensor.Key{}, 0, 1, []int{rows, width}, c.weight)
				var heap [2]int
				for i, n := range []int{1 << 6, 1 << 11} {
					x := meshtest.Place(m, someIDs(n, rows, 3), []int{n}, c.ids)
					var starts []int64
					for b := range bags {
						starts = append(starts, int64(b*n/bags))
					}
					offsets := meshtest.Place(m, starts, []int{bags}, replicate)
					alone, _, err := allocations(ctx, m, func() error {
						return dtensor.Try(ctx, m, func() { c.f(w, x, offsets) })
					})
					if err != nil {
						return err
					}
					step, bytes, err := allocations(ctx, m, func() error {
						_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return c.f(w, x, offsets).Sum(nil, false) }, w)
						return err
					})
					if err != nil {
						return err
					}
					const more = 8
					if heap[i] = bytes; !testenv.Race && (alone > c.alone+more || step > c.step+more) {
						t.Errorf("%d ids: %v allocations alone and %v in a step, want at most %v and %v", n, alone, step, c.alone, c.step)
					}
				}
				if heap[1]-heap[0] > 1<<12 && !c.grows {
					return fmt.Errorf("a step allocates %d bytes for 64 ids and %d for 2048", heap[0], heap[1])
				}
				return nil
			})
		})
	}
}

// allocations returns how often and how much all ranks together allocate in one
// call of f: the least of some tries, because what goes on beside the test may
// allocate too.
func allocations(ctx context.Context, m *dtensor.Mesh, f func() error) (times float64, bytes int, err error) {
	const runs, tries = 5, 3
	round := func() { // what ranks do in one is not counted in another
		err = errors.Join(err, comm.Barrier(ctx, m.Comm()), f(), comm.Barrier(ctx, m.Comm()))
	}
	times, bytes = math.Inf(1), math.MaxInt
	var before, after runtime.MemStats
	for range tries {
		found := []float64{0, 0}
		if m.Comm().Rank() == 0 {
			runtime.ReadMemStats(&before)
			found[0] = testing.AllocsPerRun(runs, round)
			runtime.ReadMemStats(&after)
			found[1] = float64(after.TotalAlloc-before.TotalAlloc) / (runs + 1)
		} else {
			for range runs + 1 {
				round()
			}
		}
		if err != nil {
			return 0, 0, fmt.Errorf("while allocations are counted: %w", err)
		}
		if err := comm.Broadcast(ctx, m.Comm(), found, 0); err != nil {
			return 0, 0, err
		}
		times, bytes = min(times, found[0]), min(bytes, int(found[1]))
	}
	return times, bytes, nil
}

// TestCollectionAllocations: what a step of a collection allocates on Go's heap does
// not grow with the ids of a sample.
func TestCollectionAllocations(t *testing.T) {
	const samples, rows = 8, 64
	for _, mode := range []embedding.Mode{embedding.Sum, embedding.Mean} {
		for _, l := range []embedding.Layout{embedding.RowWise("a"), embedding.ColumnWise("a"), embedding.Replicated()} {
			meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
				c := embedding.NewCollection(m, embedding.CollectionTable{Features: []string{"f"}, Mode: mode,
					Config: embedding.Config{Name: "t", Rows: rows, Dim: 8, Layout: l, PaddingIdx: new(3)}})
				var heap [2]int
				for i, n := range []int{8, 256} {
					b := &batch{features: []string{"f"}, lists: [][][]int64{nil}}
					for s := range samples {
						b.lists[0] = append(b.lists[0], someIDs(n, rows, s))
					}
					j, err := b.place(m, shard0)
					if err != nil {
						return err
					}
					if _, heap[i], err = allocations(ctx, m, func() error {
						_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return c.Bags(j).Values().Sum(nil, false) }, c.Params()...)
						return err
					}); err != nil {
						return err
					}
				}
				if heap[1]-heap[0] > 1<<12 {
					return fmt.Errorf("%v of bags, %v: a step allocates %d bytes for lists of 8 ids and %d for 256", mode, l, heap[0], heap[1])
				}
				return nil
			})
		}
	}
}
