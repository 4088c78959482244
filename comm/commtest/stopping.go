package commtest

import (
	"context"
	"fmt"
	"time"

	"github.com/gorun-spmd/gorun/comm"
)

// stopping: a context ends on one rank because the job is to stop. Calls under it go
// on: those in progress and those that begin after it.
func stopping(ctx context.Context, world *comm.Comm) error {
	n, me := world.Size(), world.Rank()
	mine, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for round := range 4 {
		if me == 0 && round == 1 {
			time.AfterFunc(2*time.Millisecond, func() { cancel(fmt.Errorf("test: %w", comm.ErrStopping)) })
		}
		if me == n-1 && round == 1 { // rank 0 is in the call when its context ends
			time.Sleep(20 * time.Millisecond)
		}
		if me == 0 && round == 2 {
			<-mine.Done()
		}
		x := []int64{1}
		if err := comm.AllReduce(mine, world, x, comm.Sum); err != nil || x[0] != int64(n) {
			return fmt.Errorf("round %d: sum %d of %d ranks, %v", round, x[0], n, err)
		}
	}
	return nil
}
