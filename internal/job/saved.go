package job

import "context"

type savedKey struct{}

// WithSaved returns a context by which those who save what a job can be resumed from
// tell so: they call Saved, and that calls f.
func WithSaved(ctx context.Context, f func()) context.Context {
	return context.WithValue(ctx, savedKey{}, f)
}

// Saved calls the function of WithSaved, if ctx has one.
func Saved(ctx context.Context) {
	if f, ok := ctx.Value(savedKey{}).(func()); ok {
		f()
	}
}
