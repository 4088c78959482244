// Package commtest helps to test programs that use package comm, and holds the
// suite that every backend passes.
//
// Run has goroutines for ranks, so that a test needs no launcher, and Expect holds a function to a
// budget of communication:
//
//	func TestMean(t *testing.T) {
//		commtest.Run(t, 4, func(ctx context.Context, world *comm.Comm) error {
//			x := []float64{float64(world.Rank())}
//			err := commtest.Expect(world, "AllReduce×1 8 B", func() error {
//				return comm.AllReduce(ctx, world, x, comm.Avg)
//			})
//			if err == nil && x[0] != 1.5 {
//				err = fmt.Errorf("mean %v, want 1.5", x[0])
//			}
//			return err
//		})
//	}
//
// The rest is for those who write a backend: TestBackend.
package commtest

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/mem"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// Run runs f on n ranks, each a goroutine with its own world communicator, and
// returns when all have returned. An error of f on any rank, returned or thrown,
// aborts the world, so the others do not wait for it, and fails the test; the errors
// that follow from the first one are not reported. Ranks that wait for each other fail
// the test within a second, with each rank's call and its line: see mem.Watch for what
// counts. ctx ends with the test's.
//
// The ranks check as with GORUN_CHECK=1, unless the environment has GORUN_CHECK=0: see
// comm.CheckKey.
//
// f may call t.Fatal: the others then fail with that cause.
func Run(t testing.TB, n int, f func(ctx context.Context, world *comm.Comm) error) {
	t.Helper()
	errs := Ranks(t.Context(), n, f)
	var deadlock *mem.DeadlockError
	reported := false
	for r, err := range errs {
		switch {
		case err == nil || errors.Is(err, comm.ErrAborted) || errors.Is(err, comm.ErrEnded):
		case errors.As(err, &deadlock):
		default:
			t.Errorf("rank %d of %d: %v", r, n, err)
			reported = true
		}
	}
	if deadlock != nil {
		t.Errorf("%d ranks: %v", n, deadlock)
		reported = true
	}
	for r, err := range errs {
		if err != nil && !reported {
			t.Errorf("rank %d of %d: %v", r, n, err)
			return
		}
	}
}

// Ranks is Run for programs that are expected to fail: it returns what f
// returned, or threw, on each rank.
func Ranks(ctx context.Context, n int, f func(ctx context.Context, world *comm.Comm) error) []error {
	errs := make([]error, n)
	ends := mem.Open(n)
	defer mem.Watch(ends)()
	var wg sync.WaitGroup
	for r, b := range ends {
		world := comm.NewWorld(b)
		world.Internals().Attr(comm.CheckKey, func() any { return os.Getenv("GORUN_CHECK") != "0" })
		wg.Go(func() {
			cause := "its test function did not return (t.Fatal, or a panic)"
			defer func() { b.End(cause) }()
			if errs[r] = call(ctx, world, f); errs[r] != nil {
				world.Abort(errs[r])
				cause = errs[r].Error()
			} else {
				cause = ""
			}
		})
	}
	wg.Wait()
	return errs
}

// call runs f and turns a thrown error into a returned one.
func call(ctx context.Context, world *comm.Comm, f func(ctx context.Context, world *comm.Comm) error) (err error) {
	defer fault.Catch(&err)
	return f(ctx, world)
}
