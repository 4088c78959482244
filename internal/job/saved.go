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

type endKey struct{}

// WithEnd returns a context with which AtEnd calls add.
func WithEnd(ctx context.Context, add func(end func() error)) context.Context {
	return context.WithValue(ctx, endKey{}, add)
}

// AtEnd has end called when the program's function has returned nil, if ctx is that of a rank. An
// error of it is as if the function had returned it.
func AtEnd(ctx context.Context, end func() error) {
	if add, ok := ctx.Value(endKey{}).(func(func() error)); ok {
		add(end)
	}
}
