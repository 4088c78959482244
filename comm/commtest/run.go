// Package commtest helps to test programs that use package comm, and holds the
// suite that every backend passes.
package commtest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/mem"
)

// Run runs f on n ranks, each a goroutine with its own world communicator, and
// returns when all have returned. An error of f on any rank aborts the world,
// so the others do not wait for it, and fails the test; the errors that follow
// from the first one are not reported. ctx ends with the test's.
//
// f may call t.Fatal: the others then fail with that cause.
func Run(t testing.TB, n int, f func(ctx context.Context, world *comm.Comm) error) {
	t.Helper()
	errs := Ranks(t.Context(), n, f)
	reported := false
	for r, err := range errs {
		if err != nil && !errors.Is(err, comm.ErrAborted) && !errors.Is(err, comm.ErrEnded) {
			t.Errorf("rank %d of %d: %v", r, n, err)
			reported = true
		}
	}
	for r, err := range errs {
		if err != nil && !reported {
			t.Errorf("rank %d of %d: %v", r, n, err)
			return
		}
	}
}

// Ranks is Run for programs that are expected to fail: it returns what f
// returned on each rank.
func Ranks(ctx context.Context, n int, f func(ctx context.Context, world *comm.Comm) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for r, b := range mem.Open(n) {
		world := comm.NewWorld(b)
		wg.Go(func() {
			cause := "its test function did not return (t.Fatal, or a panic)"
			defer func() { b.End(cause) }()
			if errs[r] = f(ctx, world); errs[r] != nil {
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
