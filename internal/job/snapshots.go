package job

import (
	"context"
	"os"
)

// Snapshots holds all that a rank needs to keep snapshots in memory that the launcher made.
type Snapshots struct {
	File    *os.File              // see package internal/snapshot
	Attempt int                   // as Job.Attempt
	Reserve func(bytes int) error // accounts for memory, and refuses bytes that do not fit; nil: memory is not counted
}

type snapshotsKey struct{}

// WithSnapshots returns a context from which SnapshotsOf returns s.
func WithSnapshots(ctx context.Context, s *Snapshots) context.Context {
	return context.WithValue(ctx, snapshotsKey{}, s)
}

// SnapshotsOf returns the Snapshots of ctx, nil if it has none.
func SnapshotsOf(ctx context.Context) *Snapshots {
	s, _ := ctx.Value(snapshotsKey{}).(*Snapshots)
	return s
}
