package mem

import (
	"context"
	"errors"
	"sync"

	"github.com/gorun-spmd/gorun/comm"
)

// Run runs f on n ranks, for a program that needs so many: those of world if it has n,
// else goroutines of world's rank 0, which are ranks of a world of their own. It returns
// their errors; an error on one rank ends the calls of all.
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
