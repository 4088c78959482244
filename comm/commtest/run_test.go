package commtest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
)

func TestRunSumsRanks(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 7} {
		Run(t, n, func(ctx context.Context, world *comm.Comm) error {
			x := []float32{float32(world.Rank()), 1}
			if err := comm.AllReduce(ctx, world, x, comm.Sum); err != nil {
				return err
			}
			if want := float32(n * (n - 1) / 2); x[0] != want || x[1] != float32(n) {
				return fmt.Errorf("got %v, want [%v %v]", x, want, n)
			}
			return nil
		})
	}
}

func TestRanksReportsWhoEnded(t *testing.T) {
	errs := Ranks(t.Context(), 3, func(ctx context.Context, world *comm.Comm) error {
		if world.Rank() == 1 {
			return nil
		}
		return comm.Barrier(ctx, world)
	})
	for _, r := range []int{0, 2} {
		if !errors.Is(errs[r], comm.ErrEnded) && !errors.Is(errs[r], comm.ErrAborted) || !strings.Contains(errs[r].Error(), "rank 1 ended") {
			t.Errorf("rank %d: got %v, want that rank 1 ended", r, errs[r])
		}
	}
	if errs[1] != nil {
		t.Errorf("rank 1: %v", errs[1])
	}
}

func TestAFatalRankIsNotWaitedFor(t *testing.T) {
	errs := Ranks(t.Context(), 2, func(ctx context.Context, world *comm.Comm) error {
		if world.Rank() == 1 {
			runtime.Goexit() // what t.Fatal does
		}
		return comm.Barrier(ctx, world)
	})
	if errs[1] != nil || !errors.Is(errs[0], comm.ErrEnded) || !strings.Contains(errs[0].Error(), "did not return") {
		t.Errorf("got %v", errs)
	}
}

func TestMismatchNamesBothCalls(t *testing.T) {
	errs := Ranks(t.Context(), 2, func(ctx context.Context, world *comm.Comm) error {
		if world.Rank() == 1 {
			return comm.Barrier(ctx, world)
		}
		return comm.AllReduce(ctx, world, make([]float32, 3), comm.Max)
	})
	for r, err := range errs {
		if !errors.Is(err, comm.ErrMismatch) || strings.Count(err.Error(), "run_test.go") != 3 ||
			!strings.Contains(err.Error(), "rank 0 called AllReduce max float32[3] at") || !strings.Contains(err.Error(), "rank 1 called Barrier at") {
			t.Errorf("rank %d: got %v", r, err)
		}
	}
}
