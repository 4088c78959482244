package job

import (
	"context"
	"os"
)

// Snapshots is what a rank needs to keep snapshots in memory of the launcher's.
type Snapshots struct {
	File    *os.File              // see package internal/snapshot
	Attempt int                   // of the job
	Reserve func(bytes int) error // accounts for memory, and refuses what does not fit; nil: nobody counts
}

type snapshotsKey struct{}

// WithSnapshots returns a context by which those who keep snapshots find where.
func WithSnapshots(ctx context.Context, s *Snapshots) context.Context {
	return context.WithValue(ctx, snapshotsKey{}, s)
}

// SnapshotsOf returns what WithSnapshots was given, nil if there is none.
func SnapshotsOf(ctx context.Context) *Snapshots {
	s, _ := ctx.Value(snapshotsKey{}).(*Snapshots)
	return s
}
