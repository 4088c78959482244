package backend

import (
	"context"
	"errors"
)

// ErrStopping is the cause of a context that ends no calls: see package comm.
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
