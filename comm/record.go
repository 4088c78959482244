package comm

import (
	"sync"
	"time"

	"github.com/gorun-spmd/gorun/comm/backend"
)

// An Event is one call as a Recording saw it.
type Event struct {
	Kind  Kind
	Op    Op
	DType DType  // of structs and arrays Uint8
	Elem  string // the type of the elements, "float32" or "main.Particle"; "" for a Barrier
	Bytes int    // see Call.Bytes
	Count int    // elements of that
	Comm  string
	Size  int    // ranks of the communicator
	Seq   uint64 // which call of this rank on the communicator, from 1
	Peer  int    // world number of the root or of the other side; -1: none
	Cause string
	Start time.Time
	Time  time.Duration
	Err   error

	// Number is the same on all ranks that take part in one call. For a collective it
	// counts the collectives of the communicator, from 1; for a message the messages from
	// the one rank to the other since all ranks recorded, from 1.
	Number uint64

	// Async says that the call was started, and went on by itself.
	Async bool

	// Waits says that this is not a call but the time that Wait took, for an asynchronous
	// call of that Kind. Only Observe shows it.
	Waits bool

	site  backend.Site
	where string // the site as text; "" if nobody has asked for it
}

// Site returns where the call was made, "train.go:31".
func (e *Event) Site() string {
	if e.where != "" {
		return e.where
	}
	return e.site.String()
}

// A Recording keeps, or shows, every call that this rank makes on any communicator of a
// world, from Record to Stop. While one runs each call reads the clock and its
// call stack, which costs under a microsecond.
type Recording struct {
	shared *shared
	next   *Recording   // the one that was running before, which goes on
	show   func(*Event) // called with each event; nil: events are kept
	mu     sync.Mutex
	events []Event
	sites  map[backend.Site]string // as text, of the events that were shown
}

// Record starts a recording. Recordings may nest; stop the last one first.
func (c *Comm) Record() *Recording { return c.record(nil) }

// Observe starts a recording that keeps nothing, and calls f with each event when it
// ends, on the goroutine of the call. f must make no calls, nor keep the event.
func (c *Comm) Observe(f func(*Event)) *Recording { return c.record(f) }

func (c *Comm) record(f func(*Event)) *Recording {
	r := &Recording{shared: c.shared, next: c.shared.recorder.Load(), show: f}
	c.shared.recorder.Store(r)
	return r
}

// Stop ends the recording and returns its calls, in the order they ended.
func (r *Recording) Stop() []Event {
	r.shared.recorder.CompareAndSwap(r, r.next)
	return r.Events()
}

// Events returns the calls so far.
func (r *Recording) Events() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events[:len(r.events):len(r.events)]
}

// Stats counts the calls so far.
func (r *Recording) Stats() Stats {
	var a account
	for _, e := range r.Events() {
		a.add(e.Kind, e.Cause, e.Bytes)
	}
	s := newStats()
	a.addTo(&s)
	return s
}

// observe makes the call and adds it to r and the recordings around it.
func (r *Recording) observe(c *Comm, call *Call, do func() error) error {
	e := c.event(call)
	e.Seq, e.Number, e.Async = c.seq, c.number(call), !call.Blocks()
	if call.Kind.Rooted() || call.Kind.PointToPoint() {
		e.Peer = c.world[call.Root]
	}
	call.Locate(&e.site, 2)
	return r.timed(&e, do)
}

// alone makes a call that one rank makes alone, and adds it to r and the recordings around it.
func (r *Recording) alone(c *Comm, call *Call, do func() error) error {
	e := c.event(call)
	if call.Root >= 0 && call.Root < c.size {
		e.Peer = c.world[call.Root]
	}
	e.site.Capture(2)
	return r.timed(&e, do)
}

// event describes a call before it is made. Its peer is not set.
func (c *Comm) event(call *Call) Event {
	count := call.Src.Count
	if count == 0 {
		count = call.Dst.Count
	}
	return Event{
		Kind: call.Kind, Op: call.Op, DType: call.DType(), Elem: call.Elements(), Bytes: call.Bytes(), Count: count / call.Width(),
		Comm: c.name, Size: c.size, Peer: -1, Cause: call.Cause,
	}
}

// timed makes the call of an event and adds it to r and the recordings around it.
func (r *Recording) timed(e *Event, do func() error) error {
	e.Start = time.Now()
	e.Err = do()
	e.Time = time.Since(e.Start)
	r.add(e)
	return e.Err
}

// where returns a site as text. It keeps the text: to make it takes longer than many calls.
func (r *Recording) where(at backend.Site) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	text, ok := r.sites[at]
	if !ok {
		if r.sites == nil {
			r.sites = map[backend.Site]string{}
		}
		text = at.String()
		r.sites[at] = text
	}
	return text
}

// number returns the Event.Number of call, the one in progress.
func (c *Comm) number(call *Call) uint64 {
	if !call.Kind.PointToPoint() {
		return c.seq - uint64(c.account.kinds[SendKind].Calls+c.account.kinds[RecvKind].Calls)
	}
	if c.numbers == nil {
		c.numbers = map[messageKey]uint64{}
	}
	key := messageKey{call.Kind, call.Root}
	c.numbers[key]++
	return c.numbers[key]
}

// A messageKey is Send or Recv, and the other rank.
type messageKey struct {
	kind Kind
	rank int
}

// waited adds the time since start, in which Wait waited for p.
func (r *Recording) waited(p *Pending, start time.Time) {
	e := p.comm.event(&p.call)
	e.Op, e.Bytes, e.Count = NoOp, 0, 0 // the call's own event has them
	e.Start, e.Time, e.Waits = start, time.Since(start), true
	e.site.Capture(2)
	r.add(&e)
}

// add hands an event to r and the recordings around it.
func (r *Recording) add(e *Event) {
	for ; r != nil; r = r.next {
		switch {
		case r.show != nil:
			e.where = r.where(e.site)
			r.show(e)
		case !e.Waits:
			r.mu.Lock()
			r.events = append(r.events, *e)
			r.mu.Unlock()
		}
	}
}
