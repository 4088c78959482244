package message

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/release"
)

// A Request is a send or a receive that was begun. Its methods may be called more than once and
// from any goroutine.
type Request struct {
	m     *Mailbox
	buf   comm.Buffer
	what  uint64        // the type of the elements
	over  atomic.Uint64 // 1: it has ended, and what follows is only read
	peer  int32
	tag   int32
	width int32 // bytes of an element
	kind  comm.Kind
	loose bool // nobody may be waiting
	sync  bool // a send that ends when it was received

	// Guarded by the mailbox's lock until it is over.
	source, taken int32 // of a receive or a probe: the rank and the tag of the message
	got           int   // its bytes
	rare          *rare // nil: none of it
}

// A rare is what few requests have. A program may begin millions of them a second: the smaller they are, the less
// often garbage is collected.
type rare struct {
	err      error
	done     chan struct{}               // nil: nobody has asked for it
	transfer *transfer                   // of a message that goes in pieces
	alloc    func(bytes int) comm.Buffer // makes buf, when the length is known; nil: buf is there
}

// rarely returns the rare part of r.
func (r *Request) rarely() *rare {
	if r.rare == nil {
		r.rare = new(rare)
	}
	return r.rare
}

// err returns the error of a request, nil if it has none.
func (r *Request) err() error {
	if r.rare == nil {
		return nil
	}
	return r.rare.err
}

// status returns what a request got that is over.
func (r *Request) status() Status {
	return Status{Source: int(r.source), Tag: int(r.taken), Count: r.got / max(1, int(r.width))}
}

// found notes the message that a request has got.
func (r *Request) found(e *envelope) {
	r.source, r.taken, r.got, r.width = int32(e.from), e.tag, e.size(), int32(e.width)
}

// A transfer is a message that goes in pieces.
type transfer struct {
	id, peerID uint64 // this rank's number for it, the other's
	data       []byte
	at         int // bytes of data that have gone or come
}

// mostAtOnce is how many requests are allocated together by a rank that has begun as many; before, twice as many as the last time.
const mostAtOnce = 64

// args is what a call says: a send, a receive or a probe.
type args struct {
	kind             comm.Kind
	buf              comm.Buffer
	what             uint64 // the type of the elements
	width, peer, tag int    // width: bytes of an element
	sync             bool   // a send that ends when it was received
}

// describe makes an empty call that of a.
func (a *args) describe(c *comm.Call) {
	c.Kind, c.Root, c.Tag = a.kind, a.peer, a.tag
	if a.kind == comm.TaggedSendKind {
		c.Src = a.buf
	} else if a.kind == comm.TaggedRecvKind {
		c.Dst = a.buf
	}
}

// call returns an empty call that has become that of a.
func (a *args) call(m *Mailbox) *comm.Call {
	kind, peer := a.kind, a.peer // a closure over a itself would have each message allocate one
	c := &comm.Call{Untaken: func() string { return m.untaken(kind, peer) }}
	a.describe(c)
	return c
}

// newRequest makes the request of a call that the program may wait for. The lock is held.
func (m *Mailbox) newRequest(a *args) *Request {
	if m.begun == len(m.fresh) {
		m.fresh, m.begun = make([]Request, min(max(1, 2*len(m.fresh)), mostAtOnce)), 0
	}
	r := &m.fresh[m.begun]
	m.begun++
	r.m, r.loose = m, true
	r.fill(a)
	return r
}

// failed returns the request of a call that was refused.
func (m *Mailbox) failed(a *args, err error) *Request {
	r := &Request{m: m, rare: &rare{err: err}}
	r.fill(a)
	release.Store(&r.over, 1)
	return r
}

// ended reports whether r has ended; who sees it may read status and err.
func (r *Request) ended() bool { return r.over.Load() != 0 }

// fill makes r the request of a call.
func (r *Request) fill(a *args) {
	r.kind, r.peer, r.tag, r.width = a.kind, int32(a.peer), int32(a.tag), int32(a.width)
	r.buf, r.what, r.sync = a.buf, a.what, a.sync
}

// origin returns the call that began r. Few requests need it, and it is as large as they are.
func (r *Request) origin() *comm.Call {
	a := args{kind: r.kind, buf: r.buf, peer: int(r.peer), tag: int(r.tag)}
	return a.call(r.m)
}

// check returns what is wrong with a call.
func (m *Mailbox) check(a *args) error {
	any := a.kind != comm.TaggedSendKind
	switch {
	case (a.peer < 0 || a.peer >= len(m.outs)) && !(any && a.peer == AnySource):
		return fmt.Errorf("there is no rank %d; give one of 0 to %d", a.peer, len(m.outs)-1)
	case (a.tag < 0 || a.tag > MaxTag) && !(any && a.tag == AnyTag):
		return fmt.Errorf("there is no tag %d; give one of 0 to %d", a.tag, MaxTag)
	case m.holder != nil && a.buf.Count > 0 && m.holder.Holds(a.buf.Ptr):
		return errDevice
	}
	return nil
}

var errDevice = errors.New("the buffer lies in the memory of a device; copy it to the host first")

// enter checks a call. Without an error the lock is held.
func (m *Mailbox) enter(a *args) error {
	if err := m.check(a); err != nil {
		return err
	}
	if err := m.backend.Touch(a.kind, a.buf.Bytes()); err != nil {
		return err
	}
	m.mu.Lock()
	err := m.err
	if m.closed {
		err = errClosed
	}
	if err != nil {
		m.mu.Unlock()
	}
	return err
}

// begin begins a request. The lock is held.
func (r *Request) begin() {
	m := r.m
	if r.loose {
		m.loose++
	}
	if r.kind == comm.TaggedSendKind {
		m.send(r)
	} else if e := m.find(int(r.peer), int(r.tag), r.kind == comm.TaggedRecvKind); e == nil {
		m.posted.add(r)
	} else if r.kind == comm.TaggedRecvKind {
		m.accept(r, e)
		m.drop(e)
	} else {
		r.found(e)
		m.end(r, nil)
	}
	m.wakeDriver()
}

// wakeDriver sees to it that what nobody waits for goes on. The lock is held.
func (m *Mailbox) wakeDriver() {
	if !m.driving && m.loose+m.queued > 0 {
		m.driving = true
		go m.drive()
	}
}

// end says that a request has ended. The lock is held.
func (m *Mailbox) end(r *Request, err error) {
	if r.ended() {
		return
	}
	if err != nil {
		r.rarely().err = err
	}
	if r.loose {
		m.loose--
	}
	var done chan struct{}
	if r.rare != nil {
		done = r.rare.done
	}
	release.Store(&r.over, 1) // from here on r may serve another call
	if done != nil {
		close(done)
	}
}

// look makes progress, and returns the rank that r waits for, -1 if it has ended.
func (r *Request) look() (rank int, err error) {
	if r.ended() {
		return -1, nil
	}
	m := r.m
	if !m.nothing() {
		m.advance()
		if r.ended() {
			return -1, nil
		}
	}
	return m.waitsFor(int(r.peer)), nil
}

// nothing reports whether progress has nothing to do. It takes a fraction of the time of progress, and no lock.
func (m *Mailbox) nothing() bool { return m.idle.Load() && !m.rings.waits(m.me) }

// advance makes progress.
func (m *Mailbox) advance() {
	m.mu.Lock()
	m.progress()
	m.wakeDriver()
	m.mu.Unlock()
}

// waitsFor returns the rank that a request with a peer waits for. For AnySource it is the first rank that has not ended.
func (m *Mailbox) waitsFor(rank int) int {
	if rank != AnySource {
		return rank
	}
	last := m.me
	for q := range m.outs {
		if q == m.me {
			continue
		}
		last = q
		if _, ended := m.backend.Ended(q); !ended {
			return q
		}
	}
	return last
}

// broke ends the mailbox with an error of the backend, which all ranks get.
func (m *Mailbox) broke(err error) {
	m.mu.Lock()
	m.aborted = true
	m.fail(err)
	m.mu.Unlock()
}

// Wait returns when the request has ended: the buffer of a send may then be changed, that of a receive
// read. If ctx is done before, the communicator is aborted; to give up waiting alone, select on Done.
func (r *Request) Wait(ctx context.Context) (Status, error) {
	if !r.ended() {
		call := r.origin()
		if err := r.m.backend.Await(ctx, call, r.look); err != nil {
			r.m.broke(err)
			return Status{}, r.m.inner.FailAlone(call, err)
		}
	}
	return r.result()
}

// result returns how r, which is over, has ended.
func (r *Request) result() (Status, error) {
	err := r.err()
	if err == nil {
		return r.status(), nil
	}
	if err != ErrCancelled {
		r.m.settle()
	}
	if done := new(*comm.Error); errors.As(err, done) { // the call that began it
		return r.status(), err
	}
	return r.status(), r.m.inner.FailAlone(r.origin(), err)
}

// closed is the channel of requests that had ended when Done was called.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Done returns a channel that is closed when the request has ended; Wait then returns at once.
func (r *Request) Done() <-chan struct{} {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	if r.ended() {
		return closed
	}
	extra := r.rarely()
	if extra.done == nil {
		extra.done = make(chan struct{})
	}
	return extra.done
}

// Test reports whether the request has ended; Wait then returns at once.
func (r *Request) Test() bool {
	if r.ended() {
		return true
	}
	r.m.advance()
	return r.ended()
}

// ErrCancelled is what errors.Is finds in the error of a request that was cancelled.
var ErrCancelled = errors.New("the request was cancelled")

// Cancel takes a receive back that has no message yet, and reports whether it did: Wait then
// returns ErrCancelled. A send cannot be taken back.
func (r *Request) Cancel() bool {
	m := r.m
	m.mu.Lock()
	defer m.mu.Unlock()
	m.progress()
	if r.ended() {
		return errors.Is(r.err(), ErrCancelled)
	}
	i := slices.Index(m.posted.all(), r)
	if i < 0 {
		return false
	}
	m.posted.remove(i)
	m.end(r, ErrCancelled)
	return true
}

// WaitAll returns when all requests have ended, with their errors joined; of those that have one cause, such as an
// abort, it has the first. Requests that are nil are passed over.
func WaitAll(ctx context.Context, requests ...*Request) error {
	var errs []error
	var causes []string
	for _, r := range requests {
		if r == nil || r.ended() && r.err() == nil {
			continue
		}
		_, err := r.Wait(ctx)
		if err == nil {
			continue
		}
		cause := err.Error()
		if of := new(comm.Error); errors.As(err, &of) && of.Err != nil {
			cause = of.Err.Error()
		}
		if !slices.Contains(causes, cause) {
			causes, errs = append(causes, cause), append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// WaitAny returns when one of the requests has ended, which of them, and what its Wait returns. Of several
// that have ended it is the first. Requests that are nil are passed over: set one to nil when it has ended, or the
// next WaitAny returns it again. i is -1 if there are no others, or if ctx was done before.
func WaitAny(ctx context.Context, requests ...*Request) (i int, st Status, err error) {
	var first *Request
	found := func() int {
		for i, r := range requests {
			if r == nil {
				continue
			}
			if r.ended() {
				return i
			}
			if first == nil {
				first = r
			}
		}
		return -1
	}
	if i = found(); i < 0 {
		if first == nil {
			return -1, Status{}, nil
		}
		call := comm.Call{Kind: first.kind, Root: AnySource, Tag: AnyTag, Cause: "WaitAny"}
		call.Untaken = func() string { return first.m.untaken(call.Kind, AnySource) }
		err = first.m.backend.Await(ctx, &call, func() (int, error) {
			for _, r := range requests {
				if r != nil {
					r.Test()
				}
			}
			if i = found(); i >= 0 {
				return -1, nil
			}
			return first.m.waitsForAny(requests), nil
		})
		if err != nil {
			first.m.broke(err)
			return -1, Status{}, first.m.inner.FailAlone(&call, err)
		}
	}
	st, err = requests[i].result()
	return i, st, err
}

// waitsForAny returns a rank that one of the requests waits for, one that has not ended if there is one.
func (m *Mailbox) waitsForAny(requests []*Request) int {
	last := m.me
	for _, r := range requests {
		if r == nil {
			continue
		}
		last = r.m.waitsFor(int(r.peer))
		if _, ended := r.m.backend.Ended(last); !ended {
			break
		}
	}
	return last
}
