package dtensor

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// Ranks of one process work out a plan once.
func TestRanksPlanOnce(t *testing.T) {
	var plans [8]*layout.Plan
	commtest.Run(t, len(plans), func(ctx context.Context, world *comm.Comm) error {
		mesh, err := NewMesh(world, Axis{Name: "dp", Size: len(plans)})
		if err != nil {
			return err
		}
		x := Zeros(mesh, tensor.Float32, []int{16}, layout.Shard(0))
		x.Redistribute(layout.Replicate())
		w := mesh.eng.common.plans.of(commonPlan{x.spec.layout, x.spec.replicated().layout, 4})
		plans[world.Rank()] = w.value
		return nil
	})
	for r, p := range plans {
		if p == nil || p != plans[0] {
			t.Errorf("rank %d has the plan %p, rank 0 %p", r, p, plans[0])
		}
	}
}

// Whoever asks while another works waits for it.
func TestOnce(t *testing.T) {
	var o once[int, int]
	var works atomic.Int64
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			for key := range 10 {
				w := o.of(key)
				w.mu.Lock()
				if !w.done {
					works.Add(1)
					w.value, w.done = key*key, true
				}
				if w.value != key*key {
					t.Errorf("key %d: got %d", key, w.value)
				}
				w.mu.Unlock()
			}
		})
	}
	all.Wait()
	if n := works.Load(); n != 10 {
		t.Errorf("10 keys were worked out %d times", n)
	}
}

// What is refused for one type of elements is not for another.
func TestCommonKnowsTypes(t *testing.T) {
	commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
		mesh, err := NewMesh(world, Axis{Name: "dp", Size: 2})
		if err != nil {
			return err
		}
		x, i := Zeros(mesh, tensor.Float32, []int{4}, layout.Shard(0)), Zeros(mesh, tensor.Int32, []int{4}, layout.Shard(0))
		if err := Try(ctx, mesh, func() { Cat(0, x, i) }); err == nil {
			t.Error("Cat of two types was not refused")
		}
		return Try(ctx, mesh, func() { Cat(0, x, x) })
	})
}
