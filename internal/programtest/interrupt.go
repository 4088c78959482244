package programtest

import (
	"context"

	"github.com/gorun-spmd/gorun/comm"
)

// Interrupted returns a context that is cancelled, as when the user stops the job, after *onStep
// has been called steps times. It replaces *onStep to count the calls.
func Interrupted(ctx context.Context, steps int, onStep *func(int, float64)) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	made, also := 0, *onStep
	*onStep = func(n int, loss float64) {
		if also != nil {
			also(n, loss)
		}
		if made++; made == steps {
			cancel(comm.ErrStopping)
		}
	}
	return ctx
}
