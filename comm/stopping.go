package comm

import (
	"context"
	"errors"
)

// ErrStopping is what errors.Is finds in the cause of a context that was cancelled
// because the user wants the job to end, and not because calls are to end. Calls
// under such a context go on, so that the ranks can save together. runtime.Main
// cancels its context so. Another function that cancels a context may do it too:
//
//	ctx, cancel := context.WithCancelCause(ctx)
//	cancel(fmt.Errorf("the machine is needed: %w", comm.ErrStopping))
var ErrStopping = errors.New("the job is to stop")

// Cancelled returns why ctx ends calls: the cause of its end, or nil if it has not
// ended or if its cause is ErrStopping. It is for implementers of a Backend.
func Cancelled(ctx context.Context) error {
	switch {
	case ctx == nil:
		return errors.New("the context is nil; pass the ctx that the program's function got, or context.Background()")
	case ctx.Err() == nil:
		return nil
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, ErrStopping) {
		return nil
	}
	return cause
}
