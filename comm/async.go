package comm

import (
	"context"
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorun-spmd/gorun/comm/backend"
)

// A Pending is a call that was started and may not have ended.
type Pending struct {
	done chan struct{}
	err  error    // valid once done is closed
	next *Pending // the call that was started after it; nil: none was
	comm *Comm    // nil: there is none
	call Call
	ctx  context.Context
}

// Wait returns when the call has ended, with its error. It may be called more
// than once and from any goroutine.
func (p *Pending) Wait() error {
	p.await()
	if p.err != nil && p.comm != nil {
		p.comm.shared.unheard.CompareAndSwap(p, nil)
	}
	return p.err
}

// Done returns a channel that is closed when the call has ended.
func (p *Pending) Done() <-chan struct{} { return p.done }

// A queue holds the calls of one communicator that were started and have not
// ended, in order.
type queue struct {
	waiters backend.Waiters
	mu      sync.Mutex              // guards a change of last, and of next of a call that is last
	last    atomic.Pointer[Pending] // nil: there is no call
}

// await returns when p has ended. It waits for all calls before p too.
func (p *Pending) await() {
	select {
	case <-p.done:
		return
	default:
	}
	waiters := &p.comm.account.queue.waiters
	waiters.Begin()
	if r := p.comm.shared.recorder.Load(); r != nil {
		start := time.Now()
		<-p.done
		r.waited(p, start)
	}
	<-p.done
	waiters.End()
}

// Start begins call and returns at once. The calls of a communicator are
// carried out one after the other in the order in which they were started; a
// blocking call first waits for those before it. Until the call has ended,
// nobody may write to its buffers or count vectors, nor read those it fills.
// ctx is the call's: if it is done before the call has ended the communicator
// is aborted.
//
//	p := c.Start(ctx, comm.Call{Kind: comm.AllReduceKind, Op: comm.Sum, Dst: comm.Of(x), Src: comm.Of(x)})
//	…
//	err := p.Wait()
func (c *Comm) Start(ctx context.Context, call Call) *Pending {
	p := &Pending{done: make(chan struct{}), call: call, ctx: ctx}
	if c.none() {
		p.err = noComm(&call)
		close(p.done)
		return p
	}
	p.comm = c
	p.call.Start(&c.account.queue.waiters)
	c.shared.started.Add(1)
	if c.account.queue.add(p) {
		go c.progress(p)
		goruntime.Gosched() // others get what they wait for now, not when this goroutine loses its processor
	}
	return p
}

// add puts p last; first says that no call was before it.
func (q *queue) add(p *Pending) (first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiters.Open()
	last := q.last.Load()
	if last != nil {
		last.next = p
	}
	q.last.Store(p)
	return last == nil
}

// progress carries out p, the first call of the queue, and those after it until the queue is empty.
func (c *Comm) progress(p *Pending) {
	for p != nil {
		c.account.mu.Lock()
		c.call = p.call
		if p.err = c.finish(p.ctx, &c.call); p.err != nil {
			c.shared.unheard.CompareAndSwap(nil, p)
		}
		c.shared.started.Add(-1)
		p = c.account.queue.end(p)
	}
}

// end removes p, the first call, and returns the next one.
func (q *queue) end(p *Pending) (next *Pending) {
	q.mu.Lock()
	defer q.mu.Unlock()
	close(p.done) // before last changes: when drain returns, all calls must be done
	if p.next == nil {
		q.last.Store(nil)
	}
	return p.next
}

// drain returns when the queue is empty. It is inlined, so that it costs little when the queue is.
func (c *Comm) drain() {
	if c.account.queue.last.Load() != nil {
		c.awaitAll()
	}
}

func (c *Comm) awaitAll() { c.account.queue.awaitAll() }

func (q *queue) awaitAll() {
	for p := q.last.Load(); p != nil; p = q.last.Load() {
		p.await()
	}
}

// Settle returns when the calls that this rank has started have ended, on all communicators of its world. Its
// error is that of a call whose Wait the program has not called.
func (i Internals) Settle() error {
	s := i.c.shared
	for _, a := range s.ledger.open() {
		a.queue.awaitAll()
	}
	if p := s.unheard.Load(); p != nil {
		return p.err
	}
	return nil
}
