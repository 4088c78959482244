package comm

import (
	"context"

	"github.com/gorun-spmd/gorun/internal/mem"
)

// A Backend is one rank's end of a group, as an implementer sees it. A Comm
// calls it from one goroutine at a time (Abort excepted), with calls that have
// been checked against the group's size, and never again after an error.
type Backend interface {
	// Rank and Size place this rank in the group.
	Rank() int
	Size() int

	// Do carries out one call and returns when this rank's buffers may be used
	// again. It checks that the ranks agree on call.Fingerprint (Mismatch makes
	// the error), and returns with an error soon after ctx is done, Abort is
	// called on any rank or a rank that it needs ends; such an error reaches
	// every rank of the group. call and the memory it names must not be kept.
	Do(ctx context.Context, call *Call) error

	// Split makes a new group of some of this one's ranks. All ranks call it
	// together; each passes the ranks of its own new group in their new order
	// (the same list in each of them), or none to join none and get nil.
	Split(ctx context.Context, members []int) (Backend, error)

	// Abort ends the group: pending and later calls of all its ranks, and of
	// all groups split from it, fail with cause (see AbortError). Only the
	// first of all causes counts. It may be called at any time from any goroutine.
	Abort(cause error)

	// Memory is where buffers should live so that no copy is needed, nil if anywhere.
	Memory() mem.Allocator
}
