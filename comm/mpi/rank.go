//go:build linux && !nolibs

package mpi

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/mem"
)

// worldID is the world's id.
const worldID = 1

// maxBytes is the most that one MPI call moves: far enough below 2³¹ for what
// libraries compute from it, and for a tag to hold, see length.go.
const maxBytes = 1 << 27

// The tags of messages on a group's communicator, which tagBits hold.
const (
	tagMessage = iota // Send and Recv
	tagPair           // collectives made of messages
	tagCheck          // notes of collectives
	tagCompare        // notes of a Send, to the receiver
	tagText           // descriptions of calls that differ
	tagReply          // notes of a Recv, to the sender
)

// Rank is one rank's end of a communicator. It implements backend.Backend.
type Rank struct {
	job    *job
	parent *Rank
	*group
	me        int
	world     []int
	checks    checking
	unordered bool
	most      int // bytes of one MPI call
	far       int // of one message of carry to another host
	levels    *levels
	splits    uint64

	// Scratch of the call in progress.
	current        *backend.Call
	sending        backend.Call // the Send of a SendRecv
	gate           gate
	requests       []request
	receives       []receive // of messages, among them
	counts, starts []int32
	sends, recvs   []backend.Buffer
	store          []uint64
	srcs           []unsafe.Pointer
	prefixes       backend.Prefixes
	dsts           [2]unsafe.Pointer
	notes          []note
	noted          int // how many of them are of this call
	texts          *texts
	mail           mail
	pad            [2]uint64 // where empty buffers lie
}

// Rank returns this rank's number in the communicator.
func (r *Rank) Rank() int { return r.me }

// Size returns the number of ranks.
func (r *Rank) Size() int { return len(r.world) }

// Memory returns nil: the library reads any memory.
func (r *Rank) Memory() mem.Allocator { return nil }

// dead returns the abort that ended the group, nil if none has.
func (r *Rank) dead() *backend.AbortError {
	for g := r; g != nil; g = g.parent {
		if e := g.aborted.Load(); e != nil {
			return e
		}
	}
	return nil
}

// Split makes new communicators, and frees some that are not used any more.
func (r *Rank) Split(ctx context.Context, members []int) (backend.Backend, error) {
	if e := r.dead(); e != nil {
		return nil, e
	}
	if err := r.takeTurn(ctx); err != nil {
		return nil, err
	}
	made, err := r.split(ctx, members)
	r.endTurn()
	if made == nil || err != nil {
		return nil, err
	}
	return r.job.join(made), nil
}

// split is Split in its turn, except for what the job has to know of the communicator.
func (r *Rank) split(ctx context.Context, members []int) (*Rank, error) {
	if err := r.reclaim(ctx); err != nil {
		return nil, err
	}
	r.splits++
	color, key := r.job.lib.undefined, int32(0)
	if len(members) > 0 {
		color, key = int32(members[0]), int32(slices.Index(members, r.me))
	}
	r.job.mu.Lock()
	r.job.made = 0 // a handle may be shorter
	err := r.job.lib.call(commSplit, r.comm, uintptr(color), uintptr(key), pointer(&r.job.made))
	if err != nil {
		r.abort(err)
		r.job.mu.Unlock()
		return nil, err
	}
	var made *group
	if len(members) > 0 {
		id := fnv.New64a()
		fmt.Fprintf(id, "%d/%d:%d", r.id, r.splits, members[0])
		made = newGroup(id.Sum64(), r.job.made, int(key), len(members))
	}
	r.children = append(r.children, made)
	r.job.mu.Unlock()
	if made == nil {
		return nil, nil
	}
	world := ints.Pick(r.world, members)
	return &Rank{job: r.job, parent: r, group: made, me: int(key), world: world,
		checks: r.checks, unordered: r.unordered, most: r.most, far: r.far, levels: r.job.levels(world)}, nil
}

// Do carries out one call.
func (r *Rank) Do(ctx context.Context, call *backend.Call) error {
	if err := call.Carried("comm/mpi", patterns); err != nil {
		r.Abort(err)
		return err
	}
	r.current = call
	defer func() { r.current = nil }()
	if err := r.admit(ctx, call); err != nil {
		return err
	}
	return r.collective(ctx, call)
}

// admit begins a call: it counts it and compares it with the others'.
func (r *Rank) admit(ctx context.Context, call *backend.Call) error {
	if e := r.dead(); e != nil {
		return e
	}
	r.number(call)
	if err := r.news(); err != nil {
		return err
	}
	if r.checks == checkNone {
		return nil
	}
	return r.agree(ctx, call)
}

// number counts a call, and records it.
func (r *Rank) number(call *backend.Call) {
	switch call.Kind {
	case backend.SendKind:
		r.messages.Add(1)
		r.count(call)
	case backend.RecvKind:
		r.messages.Add(-1)
		r.count(call)
	default:
		r.calls.Add(1)
	}
	r.record(call)
}

// news reads the control messages that may have come since this rank last looked, and
// returns the abort that it finds in them.
func (r *Rank) news() error {
	j := r.job
	if uint64(ticks()-j.polled.Load()) < staleAfter {
		return nil
	}
	j.mu.Lock()
	for range 8 { // a library may take one message at a time from what has come
		j.poll()
	}
	j.mu.Unlock()
	if e := r.dead(); e != nil {
		return e
	}
	return nil
}

// begin starts a request, at the next pass of the gate: f with args and the address
// of the request.
func (r *Rank) begin(receive bool, f function, args ...uintptr) error {
	r.requests = append(r.requests, request{receive: receive})
	r.gate.add(r.job.lib, f, len(r.requests)-1, args)
	if r.gate.n < gateCalls {
		return nil
	}
	return r.flush()
}

// flush makes the calls of the requests that were begun.
func (r *Rank) flush() error {
	r.job.mu.Lock()
	defer r.job.mu.Unlock()
	_, err := r.gate.run(r.job.lib, r.requests, 0, 0)
	if err != nil {
		r.abort(err)
		if r.current != nil {
			kept := *r.current
			r.job.drop(r.requests, r, &kept)
		} else {
			r.job.drop(r.requests, r)
		}
	}
	return err
}
