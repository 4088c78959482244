package comm

import (
	"sync"
	"time"
)

// An Event is one call as a Recording saw it.
type Event struct {
	Kind  Kind
	Op    Op
	DType DType
	Bytes int // see Call.Bytes
	Comm  string
	Seq   uint64
	Cause string
	Start time.Time
	Time  time.Duration
	Err   error
	site  site
}

// Site returns where the call was made, "train.go:31".
func (e *Event) Site() string { return e.site.String() }

// A Recording keeps every call that this rank makes on any communicator of a
// world, from Record to Stop. While one runs each call reads the clock and its
// call stack, which costs under a microsecond.
type Recording struct {
	shared *shared
	next   *Recording // one that was running already, and goes on
	mu     sync.Mutex
	events []Event
}

// Record starts a recording. Recordings may nest; stop the last one first.
func (c *Comm) Record() *Recording {
	r := &Recording{shared: c.shared, next: c.shared.recorder.Load()}
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
	s := Stats{Causes: map[Cause]Count{}}
	for _, e := range r.Events() {
		s.Kinds[e.Kind].add(e.Bytes)
		if e.Cause != "" {
			key := Cause{e.Kind, e.Cause}
			n := s.Causes[key]
			n.add(e.Bytes)
			s.Causes[key] = n
		}
	}
	return s
}

// observe makes the call and adds it to r and the recordings around it.
func (r *Recording) observe(c *Comm, call *Call, do func() error) error {
	e := Event{Kind: call.Kind, Op: call.Op, DType: call.DType(), Bytes: call.Bytes(), Comm: c.name, Seq: c.seq, Cause: call.Cause}
	if call.site != nil {
		e.site = *call.site
	} else {
		e.site.capture(2)
	}
	e.Start = time.Now()
	e.Err = do()
	e.Time = time.Since(e.Start)
	for ; r != nil; r = r.next {
		r.mu.Lock()
		r.events = append(r.events, e)
		r.mu.Unlock()
	}
	return e.Err
}
