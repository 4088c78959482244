package job

import "context"

type savedKey struct{}

// WithSaved returns a context with which Saved calls f. Code that has saved a state from which
// the job can be resumed calls Saved.
func WithSaved(ctx context.Context, f func()) context.Context {
	return context.WithValue(ctx, savedKey{}, f)
}

// Saved calls the function of WithSaved, if ctx has one.
func Saved(ctx context.Context) {
	if f, ok := ctx.Value(savedKey{}).(func()); ok {
		f()
	}
}
