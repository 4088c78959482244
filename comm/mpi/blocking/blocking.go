// Package blocking makes a comm.Backend of an MPI binding that has blocking
// messages and nothing that can be taken back: what packages gompi and empi
// share.
//
// Collectives are made of messages between pairs of ranks, in rounds: in round
// k ranks p and (k-p) mod n meet, and the lower sends first. So no two ranks
// wait for each other's Send, however large the message. Reductions fold in
// rank order. Groups are tags: the bindings make communicators of the whole
// world only.
//
// A call that waits cannot be stopped. Abort, a context that is done, and a
// rank that Close is told to have failed therefore end the whole job, with the
// cause on standard error. Before each collective a rank exchanges the call's fingerprint
// with the ranks before and after it, unless GORUN_DEBUG=0 says not to, the same on all
// ranks: ranks that disagree end the job with an error that names both calls. A Send or a
// Recv that no other side meets hangs, and counts that only two ranks know are not compared.
package blocking

import (
	"context"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/mem"
)

// A Binding is one MPI library's world. Its functions may be called from
// several goroutines; messages are never empty.
type Binding interface {
	Rank() int
	Size() int
	// Send and Recv return when data may be used again, and when it has come.
	Send(data []byte, to, tag int) error
	Recv(data []byte, from, tag int) error
	// Abort ends all ranks of the job. It need not return.
	Abort()
	// Close ends the library, on all ranks together.
	Close() error
}

// maxBytes is the most that one message holds.
const maxBytes = 1 << 30

// job is what all groups of one process share.
type job struct {
	binding Binding
	name    string
	most    int
	checks  bool
	ending  func(cause error)
	mu      sync.Mutex
	next    int // the lowest tag that no group of this rank has
}

// Rank is one rank's end of a group. It implements comm.Backend.
type Rank struct {
	job   *job
	me    int
	world []int
	tag   int

	notes        *[2]note // by itself: cgo takes no address in what holds Go pointers
	sends, recvs []comm.Buffer
	store        []uint64
	srcs         []unsafe.Pointer
}

// New returns the world of a binding. name is the package that errors speak of.
func New(name string, b Binding) *Rank {
	world := make([]int, b.Size())
	for r := range world {
		world[r] = r
	}
	checks := os.Getenv("GORUN_DEBUG") != "0"
	return &Rank{job: &job{binding: b, name: name, most: maxBytes, checks: checks, ending: func(error) {}, next: 1}, me: b.Rank(),
		world: world}
}

// Rank returns this rank's number in the group.
func (r *Rank) Rank() int { return r.me }

// Size returns the number of ranks.
func (r *Rank) Size() int { return len(r.world) }

// Memory returns nil: any memory will do.
func (r *Rank) Memory() mem.Allocator { return nil }

// Library returns the name of the package that errors speak of.
func (r *Rank) Library() string { return r.job.name }

// Failure returns nil: a rank that another one's failure reaches is ended by it.
func (r *Rank) Failure() error { return nil }

// OnAbort has f called with the cause before this rank ends the job.
func (r *Rank) OnAbort(f func(cause error)) { r.job.ending = f }

// Abort ends the job, of which it prints the cause first.
func (r *Rank) Abort(cause error) {
	fmt.Fprintf(os.Stderr, "%s: rank %d of %d ends the job: %v\n", r.job.name, r.world[r.me], r.job.binding.Size(), cause)
	r.job.ending(cause)
	r.job.binding.Abort()
}

// Close ends the library, when all ranks have called it, or the job if cause
// is not nil, or a neighbour is in a collective of the world. Only the world's Close is
// called, once.
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

// Split makes new groups. Their tag is the lowest that all ranks of this one
// have free.
func (r *Rank) Split(ctx context.Context, members []int) (comm.Backend, error) {
	r.job.mu.Lock()
	next := []int64{int64(r.job.next)}
	r.job.mu.Unlock()
	all := make([]int64, len(r.world))
	call := comm.Call{Kind: comm.SplitKind, Src: comm.Of(next), Dst: comm.Of(all)}
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
	made := &Rank{job: r.job, tag: int(tag)}
	for i, m := range members {
		made.world = append(made.world, r.world[m])
		if m == r.me {
			made.me = i
		}
	}
	return made, nil
}

// Do carries out one call.
func (r *Rank) Do(ctx context.Context, call *comm.Call) error {
	if err := call.Carried(r.job.name, patterns); err != nil {
		return err
	}
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() {
			if cause := comm.Cancelled(ctx); cause != nil {
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
func (r *Rank) message(call *comm.Call) error {
	if call.Kind == comm.SendKind {
		return r.send(call.Src, call.Root, true)
	}
	return r.recv(call.Dst, call.Root, true)
}

// send sends b to rank to. An empty b is a message only if always is set.
func (r *Rank) send(b comm.Buffer, to int, always bool) error {
	return parts(b, r.job.most, always, func(data []byte) error {
		return r.job.binding.Send(data, r.world[to], tags*r.tag)
	})
}

// recv is the other end of send.
func (r *Rank) recv(b comm.Buffer, from int, always bool) error {
	return parts(b, r.job.most, always, func(data []byte) error {
		return r.job.binding.Recv(data, r.world[from], tags*r.tag)
	})
}

// parts divides b into messages, none of which is empty.
func parts(b comm.Buffer, most int, always bool, f func(data []byte) error) error {
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
		sends[q], recvs[q] = comm.Of(out[:]), comm.Of(in[:])
	}
	return r.exchange()
}
