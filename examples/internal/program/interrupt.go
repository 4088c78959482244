package program

import "context"

// Interrupted returns a context that is cancelled when it has been looked at so
// many times, which a run does once a step.
func Interrupted(ctx context.Context, steps int) context.Context { return &countdown{ctx, steps} }

type countdown struct {
	context.Context
	left int
}

// Err counts down.
func (c *countdown) Err() error {
	c.left--
	if c.left < 0 {
		return context.Canceled
	}
	return nil
}
