//go:build linux && !nolibs

package mpi

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/internal/invariant"
)

// huge: more elements than an int32 counts.
func huge(ctx context.Context, r *Rank) error {
	world := comm.NewWorld(r)
	return commtest.Huge(world, func(buf []int8) error { return comm.Broadcast(ctx, world, buf, 0) })
}

// allocations: the steady path, counted.
func allocations(ctx context.Context, r *Rank) error {
	world := comm.NewWorld(r)
	buf, all := make([]float32, 64), make([]float32, 64*r.Size())
	counts := make([]int, r.Size())
	for i := range counts {
		counts[i] = 64
	}
	big := make([]float32, 64*r.Size())
	round := func() error {
		return errors.Join(
			comm.AllReduce(ctx, world, buf, comm.Sum),
			comm.AllReduce(ctx, world, buf, comm.Max),
			comm.AllGather(ctx, world, all, buf),
			comm.AllToAllV(ctx, world, all, counts, big, counts),
			comm.ReduceScatter(ctx, world, buf, all, comm.Sum),
			comm.Broadcast(ctx, world, buf, 0),
			comm.Barrier(ctx, world),
		)
	}
	const rounds = 200
	var before, after goruntime.MemStats
	for k := range 2 * rounds {
		if k == rounds {
			goruntime.ReadMemStats(&before)
		}
		if err := round(); err != nil {
			return err
		}
	}
	goruntime.ReadMemStats(&after)
	if made := after.Mallocs - before.Mallocs; made > rounds {
		return fmt.Errorf("%d allocations in %d rounds of 7 calls, want less than one a round", made, rounds)
	}
	return nil
}

func TestCountsBeyondInt32(t *testing.T) {
	commtest.NeedHuge(t)
	eachLauncher(t, func(t *testing.T, l launcher) { l.pass(t, 2, "huge") })
}

func TestAllocations(t *testing.T) {
	if invariant.Enabled {
		t.Skip("under the race detector pools lose what they hold")
	}
	eachLauncher(t, func(t *testing.T, l launcher) { l.pass(t, 2, "allocations") })
}
