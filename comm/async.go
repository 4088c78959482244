package comm

import (
	"context"
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A Pending is a call that was started and may not have ended.
type Pending struct {
	done chan struct{}
	err  error // valid once done is closed
	next *Pending
	comm *Comm
	call Call
	ctx  context.Context
}

// Wait returns when the call has ended, with its error. It may be called more
// than once and from any goroutine.
func (p *Pending) Wait() error {
	p.comm.queue.await(p)
	return p.err
}

// Done returns a channel that is closed when the call has ended.
func (p *Pending) Done() <-chan struct{} { return p.done }

// queue holds the calls of one communicator that were started and have not
// ended, in order.
type queue struct {
	length      atomic.Int64
	waiters     atomic.Int64  // goroutines that wait until a call has ended
	attended    chan struct{} // holds one element if waiters has risen from 0 since the last Rest; nil before the first Start
	mu          sync.Mutex
	first, last *Pending
	timer       *time.Timer // of Rest
}

// await returns when p, a call of q, has ended. It waits for all calls before p too.
func (q *queue) await(p *Pending) {
	select {
	case <-p.done:
	default:
		if q.waiters.Add(1) == 1 {
			select {
			case q.attended <- struct{}{}:
			default:
			}
		}
		if r := p.comm.shared.recorder.Load(); r != nil {
			start := time.Now()
			<-p.done
			r.waited(p, start)
		}
		<-p.done
		q.waiters.Add(-1)
	}
}

// Rest sleeps for d, or until a goroutine waits for the call, which was started and has none that
// waits for it yet. Other goroutines of the rank run meanwhile, even if they have one processor:
// a system call that sleeps would keep it from them for up to 10 ms.
func (c *Call) Rest(d time.Duration) {
	q := c.queue
	if q.timer == nil {
		q.timer = time.NewTimer(d)
	} else {
		q.timer.Reset(d)
	}
	select {
	case <-q.attended:
	case <-q.timer.C:
	}
	q.timer.Stop()
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
	p := &Pending{done: make(chan struct{}), comm: c, call: call, ctx: ctx}
	if c.none() {
		p.comm, p.err = new(Comm), noComm(&call)
		close(p.done)
		return p
	}
	p.call.queue = &c.queue
	if p.call.site == nil {
		p.call.site = new(site)
		p.call.site.capture(1)
	}
	c.shared.started.Add(1)
	if c.queue.add(p) {
		go c.progress()
		goruntime.Gosched() // others get what they wait for now, not when this goroutine loses its processor
	}
	return p
}

// add puts p last; first says that no call was before it.
func (q *queue) add(p *Pending) (first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if first = q.last == nil; first {
		q.first = p
	} else {
		q.last.next = p
	}
	if q.attended == nil {
		q.attended = make(chan struct{}, 1)
	}
	q.last = p
	q.length.Add(1)
	return first
}

// progress carries out the calls of the queue, until it is empty.
func (c *Comm) progress() {
	q := &c.queue
	for {
		q.mu.Lock()
		p := q.first
		q.mu.Unlock()
		c.account.mu.Lock()
		c.call = p.call
		p.err = c.run(p.ctx, &c.call)
		c.account.mu.Unlock()
		q.mu.Lock()
		q.first = p.next
		more := q.first != nil
		if !more {
			q.last = nil
		}
		close(p.done) // before length falls: when drain returns, all calls must be done
		q.length.Add(-1)
		c.shared.started.Add(-1)
		q.mu.Unlock()
		if !more {
			return
		}
	}
}

// drain returns when the queue is empty. It is cheap when it is.
func (c *Comm) drain() {
	if c.queue.length.Load() != 0 {
		c.waitAll()
	}
}

// waitAll is drain when the queue is not empty.
func (c *Comm) waitAll() {
	for c.queue.length.Load() != 0 {
		c.queue.mu.Lock()
		last := c.queue.last
		c.queue.mu.Unlock()
		if last != nil {
			c.queue.await(last)
		}
	}
}
