package comm

import (
	"context"
	"errors"
	"fmt"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/mem"
)

// A Comm is one rank's end of a communicator: a group of ranks that make the
// same calls in the same order. Calls from several goroutines do not corrupt
// it, but their order would differ between ranks, so use one.
type Comm struct {
	rank, size int
	world      []int // world[r] is the world number of rank r; ranks of one process may share it
	name       string
	shared     *shared
	memory     mem.Allocator
	backend    Backend

	account *account // its lock is held during a call, and guards what follows
	call    Call     // the call in progress, here so that a call allocates nothing
	simple  Call     // the call in progress if do makes it; Func, counts and rows stay zero
	second  Call     // the Recv of a SendRecv, whose Send is call
	seq     uint64   // calls made
	splits  int      // communicators made from this one
	err     error    // the first error; sticky
	apart   error    // why this rank may make no collective now; nil: it may

	wrap    *func(Backend, []int) Backend // the function that made wrapped; nil: none has
	wrapped Backend

	numbers map[messageKey]uint64 // of recorded messages, see Event.Number
	counts  [2][]int              // of the call in progress in bytes, see Call.CountBytes
	scratch []uint64              // a buffer of a call in place, see separate
}

// NewWorld returns the communicator of all ranks over b. Each rank calls it
// once, and makes every other communicator by Split or Group.
func NewWorld(b Backend) *Comm {
	s := newShared()
	if b, ok := b.(backend.CommonBackend); ok {
		s.common = b.Common()
	}
	world := s.common.Get(worldKey{}, func() any { return ints.Range(b.Size()) }).([]int)
	memory := b.Memory()
	if memory == nil {
		memory = new(mem.System)
	}
	return newComm("world", s, b, b.Rank(), world, memory)
}

// worldKey is the key of the list of all ranks.
type worldKey struct{}

// newComm returns rank's communicator of the ranks with these world numbers. One of a single rank has a
// backend of its own.
func newComm(name string, s *shared, b Backend, rank int, world []int, memory mem.Allocator) *Comm {
	if len(world) == 1 {
		b = &solo{world: world[0]}
	}
	c := &Comm{name: name, shared: s, backend: b, rank: rank, size: len(world), world: world, memory: memory}
	c.account = s.ledger.add(c)
	return c
}

// Rank returns this rank's number in the communicator, from 0.
func (c *Comm) Rank() int { return c.rank }

// Size returns the number of ranks.
func (c *Comm) Size() int { return c.size }

// WorldRank returns the world number of rank r of the communicator.
func (c *Comm) WorldRank(r int) int { return c.world[r] }

// Name identifies the communicator in messages: "world", "world/2:0" for
// colour 0 of the second communicator split from it.
func (c *Comm) Name() string { return c.name }

// Memory returns where buffers should live so that other ranks read and write
// them in place. It is never nil. It may be used from any goroutine.
func (c *Comm) Memory() mem.Allocator { return c.memory }

// Abort ends the communicator and all that were split from it: pending and
// later calls of all its ranks return an error for which errors.Is(err,
// ErrAborted) is true and which names this rank and cause. Only the first
// abort counts. Abort may be called from any goroutine. A nil cause is
// recorded as "no cause given".
func (c *Comm) Abort(cause error) {
	if cause == nil {
		cause = errors.New("no cause given")
	}
	c.backend.Abort(cause)
}

// Do carries out call: AllReduce is Do of a Call of AllReduceKind, and so are the
// other collectives. It returns when this rank's buffers may be used again. Its
// error is an *Error.
//
// If ctx is done before or during the call the communicator is aborted on all
// ranks, and cannot be used again. A ctx whose cause is ErrStopping aborts nothing.
func (c *Comm) Do(ctx context.Context, call Call) error {
	if c.none() {
		return noComm(&call)
	}
	c.drain()
	c.account.mu.Lock()
	c.call = call
	return c.finish(ctx, &c.call)
}

// do is Do for calls that have neither counts nor a Func. It sets the fields of c.simple one
// by one: to copy or to clear a Call takes a large part of the time of a small collective.
func (c *Comm) do(ctx context.Context, kind Kind, op Op, root int, dst, src Buffer) error {
	if c.none() {
		return noComm(&Call{Kind: kind, Op: op, Root: root, Dst: dst, Src: src})
	}
	c.drain()
	c.account.mu.Lock()
	call := &c.simple
	call.Kind, call.Op, call.Root = kind, op, root
	call.Dst, call.Src = dst, src
	if c.size > 1 || c.shared.recorder.Load() != nil || c.shared.wrap.Load() != nil {
		return c.finish(ctx, call)
	}
	err := c.run(ctx, call) // nothing in it panics, and to defer would take a sixth of the time
	c.account.mu.Unlock()
	return err
}

// finish runs a call and unlocks c, also when a backend, a Func or an observer panics.
func (c *Comm) finish(ctx context.Context, call *Call) error {
	defer c.account.mu.Unlock()
	return c.run(ctx, call)
}

// none reports whether c is nil, as a rank that is in no group gets it, or the zero Comm.
func (c *Comm) none() bool { return c == nil || c.backend == nil }

// is reports whether this rank is the given one of c. Where c is none, is returns false and ranks returns 0, so that a
// function comes to its first call, which refuses c.
func (c *Comm) is(rank int) bool { return !c.none() && c.rank == rank }

// ranks is Size that takes a nil c.
func (c *Comm) ranks() int {
	if c.none() {
		return 0
	}
	return c.size
}

func noComm(call *Call) error {
	return &Error{Call: call.String(), Site: call.Site(), Rank: -1,
		Err: errors.New("the communicator is nil: this rank is in none of the groups of Split or Group; make the call on ranks that are")}
}

// run carries out call, which is c.call or c.simple. c is locked.
func (c *Comm) run(ctx context.Context, call *Call) error {
	c.seq++
	special, err := call.Problem(c.rank, c.size)
	if c.apart != nil && err == nil && call.Kind.Shape().Pattern != backend.PatternMessage {
		err = c.apart
	}
	if err == nil && special != 0 {
		err = c.adapt(call, special)
	}
	if err != nil || c.err != nil || ctx == nil || ctx.Err() != nil {
		if err := c.refuse(ctx, call, err); err != nil {
			return err
		}
	}
	var r *Recording
	if !call.Check {
		c.account.add(call.Kind, call.Cause, call.Bytes())
		r = c.shared.recorder.Load()
	}
	if r != nil {
		err = r.observe(c, call, func() error { return c.carrier().Do(ctx, call) })
	} else {
		err = c.carrier().Do(ctx, call)
	}
	if err != nil {
		return c.fail(call, err)
	}
	return nil
}

// refuse returns the error of a call that is not to be made, nil if it is. problem is what is wrong with the
// call itself.
func (c *Comm) refuse(ctx context.Context, call *Call, problem error) error {
	if c.err != nil {
		return c.fail(call, fmt.Errorf("the communicator cannot be used after its first error: %w", c.err))
	}
	if problem != nil {
		c.backend.Abort(fmt.Errorf("%v: %w", call, problem))
		return c.fail(call, problem)
	}
	if err := backend.Cancelled(ctx); err != nil {
		c.backend.Abort(err)
		return c.fail(call, err)
	}
	return nil
}

// adapt changes a special call, which was checked, into one that the backend takes.
func (c *Comm) adapt(call *Call, special backend.Special) error {
	if special&backend.SpecialRows != 0 && !c.Internals().SupportsRows() {
		return errors.New("this communicator takes no DstRows and SrcRows; pack the parts one after another, see comm.Internals.SupportsRows")
	}
	if special&backend.SpecialInPlace != 0 {
		if err := c.separate(call); err != nil {
			return err
		}
	}
	if special&backend.SpecialStructs != 0 {
		call.CountBytes(&c.counts)
	}
	return nil
}

// fail makes err an *Error about the call in progress, and sticky.
func (c *Comm) fail(call *Call, err error) error {
	e := c.failAlone(call, err)
	e.Seq = c.seq
	if c.err == nil {
		c.err = e
	}
	return e
}

// failAlone makes err an *Error about a call that has no number. The communicator can be used again.
func (c *Comm) failAlone(call *Call, err error) *Error {
	if e, ok := err.(*EndedError); ok { // ranks of one process share it
		err = e.During(call.Kind)
	}
	if errors.Is(err, ErrEnded) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		if untaken := call.NotTaken(); untaken != "" {
			err = fmt.Errorf("%w; %s", err, untaken)
		}
	}
	return &Error{Call: call.String(), Site: call.Site(), Comm: c.name, Rank: c.world[c.rank], Err: err}
}
