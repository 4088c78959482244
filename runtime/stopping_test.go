//go:build linux

package runtime

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/internal/job"
)

// TestStoppingWithoutMain of ranks of which one finds its context done.
func TestStoppingWithoutMain(t *testing.T) {
	commtest.Run(t, 3, func(ctx context.Context, world *comm.Comm) error {
		if Stopping(ctx, world) {
			return errors.New("nobody has stopped the job")
		}
		mine, cancel := context.WithCancel(ctx)
		defer cancel()
		if world.Rank() == 1 {
			cancel()
		}
		if !Stopping(mine, world) {
			return errors.New("the context of rank 1 is done")
		}
		return comm.Barrier(ctx, world)
	})
}

func TestErrorsOfAJobThatStops(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(&interruptError{syscall.SIGTERM})
	r := &rank{job: job.Job{Rank: 1, Size: 3}}
	disk := errors.New("disk full")
	for _, c := range []struct {
		err  error
		only bool // that the job stops
	}{
		{ctx.Err(), true},
		{context.Cause(ctx), true},
		{fmt.Errorf("step 7: %w", ctx.Err()), true},
		{errors.Join(ctx.Err(), context.Cause(ctx)), true},
		{disk, false},
		{errors.Join(disk, ctx.Err()), false},
		{&comm.AbortError{Rank: 0, Cause: "disk full"}, true}, // rank 0 tells
		{&comm.AbortError{Rank: 1, Cause: "disk full"}, false},
		{&comm.EndedError{Rank: 0, Cause: job.Stopped + ": exit code 143"}, true},
		{&comm.EndedError{Rank: 0}, false},
	} {
		if got := r.interrupted(ctx, c.err); got != c.only {
			t.Errorf("%v: %v, want %v", c.err, got, c.only)
		}
	}
}
