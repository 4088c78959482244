package mem

import (
	"context"
	"errors"
	"sync"

	"github.com/gorun-spmd/gorun/comm"
)

// Run runs f on exactly n ranks. If world has n ranks, each of them calls f. Else world's rank 0
// starts n goroutines, which are the ranks of a world of their own, and the other ranks return
// nil. Run returns the errors of f; an error on one goroutine rank ends the calls of all.
func Run(ctx context.Context, world *comm.Comm, n int, f func(ctx context.Context, world *comm.Comm) error) error {
	if world.Size() == n {
		return f(ctx, world)
	}
	if world.Rank() != 0 {
		return nil
	}
	errs := make([]error, n)
	var all sync.WaitGroup
	for r, end := range Open(n) {
		all.Go(func() {
			defer end.End("")
			inner := comm.NewWorld(end)
			if errs[r] = f(ctx, inner); errs[r] != nil {
				inner.Abort(errs[r])
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
