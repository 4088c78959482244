// Package ranks runs examples that need a certain number of ranks.
package ranks

import (
	"context"
	"errors"
	"sync"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/mem"
)

// Run runs f on n ranks: those of world if it has n, else n goroutines of its
// first rank, which are ranks of a world of their own.
func Run(ctx context.Context, world *comm.Comm, n int, f func(ctx context.Context, world *comm.Comm) error) error {
	if world.Size() == n {
		return f(ctx, world)
	}
	if world.Rank() != 0 {
		return nil
	}
	errs := make([]error, n)
	var all sync.WaitGroup
	for r, end := range mem.Open(n) {
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
