package backend

import (
	"sync/atomic"
	"time"
)

// Waiters are the goroutines that wait until asynchronous calls of one communicator have ended.
type Waiters struct {
	n        atomic.Int64
	attended chan struct{} // holds one element if n has risen from 0 since the last Rest; nil before Open
	timer    *time.Timer   // of Rest
}

// Open readies w, before the first call is started. It may be called again, and from one goroutine at a time.
func (w *Waiters) Open() {
	if w.attended == nil {
		w.attended = make(chan struct{}, 1)
	}
}

// Begin notes that a goroutine waits.
func (w *Waiters) Begin() {
	if w.n.Add(1) == 1 {
		select {
		case w.attended <- struct{}{}:
		default:
		}
	}
}

// End notes that a goroutine no longer waits.
func (w *Waiters) End() { w.n.Add(-1) }

// Start makes c an asynchronous call, for which w may wait. Its line is that of At, or else where the caller is.
func (c *Call) Start(w *Waiters) {
	c.waiters = w
	if c.site == nil {
		c.site = new(Site)
		c.site.Capture(2)
	}
}

// Rest sleeps for d, or until a goroutine waits for the call. The call was started, and nobody waits for
// it yet. Other goroutines of the rank run meanwhile, even if they have one processor: a system
// call that sleeps would keep it from them for up to 10 ms.
func (c *Call) Rest(d time.Duration) {
	w := c.waiters
	if w.timer == nil {
		w.timer = time.NewTimer(d)
	} else {
		w.timer.Reset(d)
	}
	select {
	case <-w.attended:
	case <-w.timer.C:
	}
	w.timer.Stop()
}

// Attended reports whether a goroutine waits for the call: it blocks, or Wait was called for
// an asynchronous one.
func (c *Call) Attended() bool { return c.Blocks() || c.waiters.n.Load() > 0 }

// Blocks reports whether the call was made where it is carried out, and not started before.
func (c *Call) Blocks() bool { return c.waiters == nil }
