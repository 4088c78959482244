package commtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/testenv"
)

// A Case is one thing that every backend must do. Run runs it on one rank of
// world, all ranks together, and returns what is wrong. It leaves world usable:
// what ends a communicator it does to one split from world.
type Case struct {
	Name string
	Run  func(ctx context.Context, world *comm.Comm) error
}

// A Harness runs f on n ranks of the backend under test, each with a world of
// its own, and returns what f returned on each.
type Harness func(ctx context.Context, n int, f func(ctx context.Context, world *comm.Comm) error) []error

// Sizes are the numbers of ranks that a backend is tested with.
var sizes = testenv.Fewer([]int{1, 2, 3, 4, 7}, 0, 1, 3)

// TestBackend runs every Case at every number of ranks.
func TestBackend(t *testing.T, run Harness) {
	for _, n := range sizes {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) {
			for _, c := range Cases() {
				t.Run(c.Name, func(t *testing.T) {
					for r, err := range run(t.Context(), n, c.Run) {
						if err != nil {
							t.Errorf("rank %d of %d: %v", r, n, err)
						}
					}
				})
			}
			t.Run("a rank ends with a lock", func(t *testing.T) { endWithLock(t, run, n) })
			t.Run("a rank ends", func(t *testing.T) { aRankEnds(t, run, n) })
			t.Run("a rank ends before its SendRecv", func(t *testing.T) { endBeforeSendRecv(t, run, n) })
			t.Run("a rank ends before its message", func(t *testing.T) { endBeforeMessage(t, run, n) })
			t.Run("a rank ends in every collective", func(t *testing.T) { endEverywhere(t, run, n) })
		})
	}
}

// aRankEnds: the last rank returns, without an error, while the others wait for
// it on the world, or for one that waits for it on a half of the world.
func aRankEnds(t *testing.T, run Harness, n int) {
	errs := run(t.Context(), n, func(ctx context.Context, world *comm.Comm) error {
		half, err := world.Split(ctx, world.Rank()%2, 0)
		if err != nil || world.Rank() == n-1 {
			return err
		}
		if half.Size() > 1 && world.Rank()%2 == (n-1)%2 {
			return comm.Barrier(ctx, half)
		}
		return comm.Barrier(ctx, world)
	})
	for r, err := range errs {
		switch {
		case r == n-1 && err != nil:
			t.Errorf("rank %d of %d, which ended: %v", r, n, err)
		case r < n-1 && (!errors.Is(err, comm.ErrEnded) || !strings.Contains(err.Error(), fmt.Sprintf("rank %d ended", n-1))):
			t.Errorf("rank %d of %d: got %v, want that rank %d ended", r, n, err, n-1)
		}
	}
}

// Cases returns all cases: Collectives, Groups, Failures, Windows, Messages and Mailboxes. A program that is
// started as N ranks can run them one after the other on its one world.
func Cases() []Case {
	return slices.Concat(Collectives(), Groups(), Failures(), Windows(), Messages(), Mailboxes())
}
