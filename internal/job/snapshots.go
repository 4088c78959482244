package job

import (
	"context"
	"io"
	"os"
)

// Snapshots holds all that a rank needs to keep snapshots in memory that the launcher made.
type Snapshots struct {
	File    *os.File              // see package internal/snapshot
	Attempt int                   // as Job.Attempt
	Reserve func(bytes int) error // accounts for memory, and refuses bytes that do not fit; nil: memory is not counted

	// Of a job on several hosts: the memories of all of them, in the order of their first ranks, and
	// the number of each rank's host. File is that of this host, and Reserve is nil.
	Hosts  []SnapshotMemory
	HostOf []int
	// Idle are the memories of hosts that have no ranks of this attempt, and had some of one before.
	Idle []SnapshotMemory
	// Fits returns an error if all snapshots on this host, those it keeps for another among them,
	// cannot have the given bytes.
	Fits func(bytes int) error
	// Tell tells gorun that there is a snapshot of a step. nil: gorun sees it.
	Tell func(step int)
}

// A SnapshotMemory is the memory of one host.
type SnapshotMemory interface {
	io.ReaderAt
	io.WriterAt
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
