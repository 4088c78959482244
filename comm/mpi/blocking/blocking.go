// Package blocking is the common part of packages gompi and empi. It makes a
// backend.Backend of an MPI binding whose messages block and cannot be cancelled.
//
// Collectives are made of messages between pairs of ranks, in rounds: in round
// k ranks p and (k-p) mod n meet, and the lower sends first. So no two ranks
// wait for each other's Send, however large the message. Reductions fold in
// rank order. A group is a tag, because the bindings make communicators of the
// whole world only.
//
// A call that waits cannot be stopped. So the whole job ends, with the cause on
// standard error, at an Abort, when a context is done, and when Close is given a cause.
//
// Before each collective a rank exchanges the call's fingerprint with the ranks before and
// after it. Ranks that disagree end the job with an error that names both calls.
// GORUN_DEBUG=0, the same on all ranks, turns this off. A Send or a Recv without its
// other side hangs, and counts that only two ranks know are not compared.
package blocking

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/mem"
)

// A Binding is one MPI library's world. Its functions may be called from
// several goroutines; messages are never empty.
type Binding interface {
	Rank() int
	Size() int
	// Send returns when data may be used again, Recv when data has arrived.
	Send(data []byte, to, tag int) error
	Recv(data []byte, from, tag int) error
	// Abort ends all ranks of the job. It need not return.
	Abort()
	// Close ends the library, on all ranks together.
	Close() error
}

// maxBytes is the size of the largest message.
const maxBytes = 1 << 30

// job is the state that all groups of one process share.
type job struct {
	binding Binding
	name    string
	most    int               // size of the largest message in bytes
	checks  bool              // ranks compare fingerprints
	ending  func(cause error) // see OnAbort
	mu      sync.Mutex
	next    int // the lowest tag that no group of this rank has
}

// Rank is one rank's end of a group. It implements backend.Backend.
type Rank struct {
	job   *job
	me    int
	world []int
	tag   int

	notes        *[2]note // allocated alone: cgo takes no address within memory that holds Go pointers
	sends, recvs []backend.Buffer
	store        []uint64
	srcs         []unsafe.Pointer
	prefixes     backend.Prefixes
}

// New returns the world of a binding. name is the package that errors name.
func New(name string, b Binding) *Rank {
	checks := os.Getenv("GORUN_DEBUG") != "0"
	return &Rank{job: &job{binding: b, name: name, most: maxBytes, checks: checks, ending: func(error) {}, next: 1}, me: b.Rank(),
		world: ints.Range(b.Size())}
}

// Rank returns this rank's number in the group.
func (r *Rank) Rank() int { return r.me }

// Size returns the number of ranks.
func (r *Rank) Size() int { return len(r.world) }

// Memory returns nil: any memory will do.
func (r *Rank) Memory() mem.Allocator { return nil }

// Library returns the name of the package that errors name.
func (r *Rank) Library() string { return r.job.name }

// Failure returns nil, because a failure on one rank ends the processes of all.
func (r *Rank) Failure() error { return nil }

// OnAbort registers f, which is called with the cause before this rank ends the job.
func (r *Rank) OnAbort(f func(cause error)) { r.job.ending = f }

// Abort prints the cause and ends the job.
func (r *Rank) Abort(cause error) {
	fmt.Fprintf(os.Stderr, "%s: rank %d of %d ends the job: %v\n", r.job.name, r.world[r.me], r.job.binding.Size(), cause)
	r.job.ending(cause)
	r.job.binding.Abort()
}

// Close ends the library when all ranks have called it. It ends the job instead if cause is not
// nil, or if a neighbour is in a collective of the world. It is called once, and only on the
// world.
func (r *Rank) Close(cause error) error {
	if cause == nil {
		cause = r.agree(nil)
	}
	if cause != nil {
		r.Abort(cause)
	}
	if err := r.job.binding.Close(); err != nil {
		return fmt.Errorf("%s: Close: %w", r.job.name, err)
	}
	return nil
}

// Split makes new groups. They share one tag, the lowest that is free on all ranks of this
// group.
func (r *Rank) Split(ctx context.Context, members []int) (backend.Backend, error) {
	r.job.mu.Lock()
	next := []int64{int64(r.job.next)}
	r.job.mu.Unlock()
	all := make([]int64, len(r.world))
	call := backend.Call{Kind: backend.SplitKind, Src: backend.Of(next), Dst: backend.Of(all)}
	if err := r.Do(ctx, &call); err != nil {
		return nil, err
	}
	tag := int64(0)
	for _, n := range all {
		tag = max(tag, n)
	}
	r.job.mu.Lock()
	r.job.next = max(r.job.next, int(tag)+1)
	r.job.mu.Unlock()
	if len(members) == 0 {
		return nil, nil
	}
	return &Rank{job: r.job, tag: int(tag), world: ints.Pick(r.world, members), me: slices.Index(members, r.me)}, nil
}

// Do carries out one call.
func (r *Rank) Do(ctx context.Context, call *backend.Call) error {
	if err := call.Carried(r.job.name, patterns); err != nil {
		return err
	}
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() {
			if cause := backend.Cancelled(ctx); cause != nil {
				r.Abort(cause)
			}
		})
		defer stop()
	}
	if call.Kind.PointToPoint() {
		return r.message(call)
	}
	if err := r.agree(call); err != nil {
		r.Abort(err) // the other ranks may be in the call already
		return err
	}
	return r.collective(call)
}

// message carries out a Send or a Recv.
func (r *Rank) message(call *backend.Call) error {
	if call.Kind == backend.SendKind {
		return r.send(call.Src, call.Root, true)
	}
	return r.recv(call.Dst, call.Root, true)
}

// send sends b to rank to. An empty b is a message only if always is set.
func (r *Rank) send(b backend.Buffer, to int, always bool) error {
	return parts(b, r.job.most, always, func(data []byte) error {
		return r.job.binding.Send(data, r.world[to], tags*r.tag)
	})
}

// recv is the other end of send.
func (r *Rank) recv(b backend.Buffer, from int, always bool) error {
	return parts(b, r.job.most, always, func(data []byte) error {
		return r.job.binding.Recv(data, r.world[from], tags*r.tag)
	})
}

// parts divides b into messages, none of which is empty.
func parts(b backend.Buffer, most int, always bool, f func(data []byte) error) error {
	data := b.Data()
	if len(data) == 0 && always {
		var nothing [1]byte
		return f(nothing[:])
	}
	for len(data) > 0 {
		n := min(len(data), most)
		if err := f(data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// barrier is a message of one byte to and from each rank.
func (r *Rank) barrier() error {
	var out, in [1]byte
	sends, recvs := r.lists()
	for q := range r.world {
		sends[q], recvs[q] = backend.Of(out[:]), backend.Of(in[:])
	}
	return r.exchange()
}
