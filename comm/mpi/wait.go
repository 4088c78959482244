//go:build linux && !nolibs

package mpi

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	goruntime "runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/comm/backend"
)

// spinning is how often a waiting rank looks in vain in one pass of the gate.
const spinning = 64

// A location is where a rank may run.
type location struct {
	host uint64      // a hash of its name
	cpus unix.CPUSet // of it
}

// newLocation is this process's, on the host of that name.
func newLocation(host string) location {
	h := fnv.New64a()
	_, _ = h.Write([]byte(host))
	p := location{host: h.Sum64()}
	_ = unix.SchedGetaffinity(0, &p.cpus) // without it no core is known
	return p
}

// patience returns how often a rank looks in vain in one pass of the gate: once if the
// ranks that share cores with it, or with such a one, are more than those cores or unknown,
// since the one waited for then needs this core. allowed is how many cores the control groups allow.
func patience(mine location, all []location, allowed int) (spins int) {
	cores, ranks := mine.cpus, 0
	for grown := true; grown; {
		grown, ranks = false, 0
		for _, p := range all {
			if p.host != mine.host {
				continue
			}
			shared, more := overlap(cores, p.cpus)
			if shared {
				ranks++
			}
			if shared && more {
				for i := range cores {
					cores[i] |= p.cpus[i]
				}
				grown = true
			}
		}
	}
	if ranks == 0 || ranks > min(cores.Count(), allowed) {
		return 1
	}
	return spinning
}

// overlap reports whether a and b share a core, and whether b has one that a lacks.
func overlap(a, b unix.CPUSet) (shared, more bool) {
	for i := range a {
		shared = shared || a[i]&b[i] != 0
		more = more || b[i]&^a[i] != 0
	}
	return shared, more
}

// How a waiting rank behaves between passes: it yields the core for a while, and
// then sleeps, since what takes long takes longer still. A yield that finds nobody
// costs 0.4 µs (2 cores of 2.1 GHz); one that finds another busy rank may cost a
// time slice.
const (
	restless    = 200 * time.Microsecond
	steadfast   = 5 * time.Millisecond // instead, with a core of its own, for a call that somebody waits for
	perByte     = 2 * time.Nanosecond  // more of it for large calls, which move only while somebody looks
	shortestNap = 20 * time.Microsecond
	longestNap  = 500 * time.Microsecond
	selfish     = 20 * time.Microsecond // then this rank's own goroutines get the core too
	controlling = 8                     // looks at a request for one at the control messages
)

// endedGrace is how long a message of a rank that has ended may be on its way.
const endedGrace = 200 * time.Millisecond

// wait returns when all of r.requests have ended, and empties it. arrived, if
// not nil, is told of each as it ends, in any order; its error ends the call, except for
// errDiffers, after which they are waited for again, with others.
func (r *Rank) wait(ctx context.Context, call *backend.Call, arrived func(i int) error) error {
	return r.waitFor(ctx, call, len(r.requests), arrived)
}

// waitFor is wait for the first n requests. The others stay, without an error.
func (r *Rank) waitFor(ctx context.Context, call *backend.Call, n int, arrived func(i int) error) (err error) {
	if n < len(r.requests) {
		if err := r.flush(); n == 0 || err != nil {
			return err
		}
	}
	again := false
	defer func() {
		switch {
		case again:
		case err != nil:
			r.forget(len(r.requests))
		default:
			r.forget(n)
		}
	}()
	first := 0
	rest := pause{patience: restless + time.Duration(call.Bytes())*perByte, yielded: r.job.yields}
	if r.job.spins > 1 && call.Attended() {
		rest.patience = max(rest.patience, steadfast)
	}
	defer func() {
		r.unstick()
		r.job.addWaited(call, rest.total+rest.waited)
	}()
	calm := r.job.alarm.Load() - 1
	for look := 0; ; look++ {
		before := first
		if err := r.sweep(&first, n, look, arrived); err != nil {
			if again = err == errDiffers; again {
				return err
			}
			return r.giveUp(call, err)
		}
		if first == n {
			return nil
		}
		if first > before {
			rest.total, rest.waited, rest.began = rest.total+rest.waited, 0, time.Time{} // a request has ended: the others are in the call
		}
		if e := r.dead(); e != nil {
			return r.giveUp(call, e)
		}
		if now := r.job.alarm.Load(); now != calm || look%1024 == 1023 {
			calm = now
			if err := r.vain(call); err != nil {
				return r.giveUp(call, err)
			}
		}
		if ctx.Done() != nil && backend.Cancelled(ctx) != nil {
			return r.giveUp(call, r.tooLate(ctx, arrived != nil))
		}
		if rest.waited >= unevenAfter { // before the rest, in which a note may come that says more
			if err := r.uneven(call); err != nil {
				return r.giveUp(call, err)
			}
		}
		rest.wait(call)
		if rest.waited >= recordAfter {
			r.probe(call, arrived != nil, rest.waited)
		}
	}
}

// forget takes the first n requests away.
func (r *Rank) forget(n int) {
	r.requests = slices.Delete(r.requests, 0, n)
	r.receives = slices.DeleteFunc(r.receives, func(v receive) bool { return v.at < n })
	for i := range r.receives {
		r.receives[i].at -= n
	}
}

// sweep makes a pass of the gate for the first n requests; if somebody wants to know of each request, and the first
// pass has not seen all end, it tests them all.
func (r *Rank) sweep(first *int, n, look int, arrived func(int) error) error {
	j := r.job
	j.mu.Lock()
	defer j.mu.Unlock()
	spins := j.spins
	if !j.yields {
		spins += n - *first
	}
	before := *first
	ended, err := r.gate.run(j.lib, r.requests[:n], before, spins)
	if err != nil {
		return err
	}
	*first = ended
	if arrived != nil {
		for i := before; i < ended; i++ {
			if err := r.tell(i, arrived); err != nil {
				return err
			}
		}
		if look > 0 {
			if err := r.each(first, arrived); err != nil {
				return err
			}
		}
	}
	if *first < n && (j.spins > controlling && look > 0 || look%controlling == controlling-1) {
		j.poll()
	}
	return nil
}

// each tests the requests from the first that had not ended on.
func (r *Rank) each(first *int, arrived func(int) error) error {
	for i := *first; i < len(r.requests); i++ {
		q := &r.requests[i]
		if !q.done {
			if err := r.job.test(q); err != nil {
				return err
			}
			if q.done {
				if err := r.tell(i, arrived); err != nil {
					return err
				}
			}
		}
		if q.done && i == *first {
			*first++
		}
	}
	return nil
}

// tell says once that request i has ended.
func (r *Rank) tell(i int, arrived func(int) error) error {
	q := &r.requests[i]
	if q.told {
		return nil
	}
	q.told = true
	return arrived(i)
}

// giveUp ends the group with err, unless it has ended, and the call.
func (r *Rank) giveUp(call *backend.Call, err error) error {
	r.job.mu.Lock()
	defer r.job.mu.Unlock()
	r.abort(err)
	kept := *call
	r.job.drop(r.requests, &kept, r, r.requests)
	return err
}

// tooLate is the error of a call whose context has ended. If the call waited for notes, comparing, the error names the
// ranks whose notes have not come.
func (r *Rank) tooLate(ctx context.Context, comparing bool) error {
	cause := context.Cause(ctx)
	if comparing {
		if late := r.late(); len(late) > 0 {
			return backend.Late(cause, late)
		}
	}
	if r.checks != checkAll && errors.Is(cause, context.DeadlineExceeded) {
		return fmt.Errorf("%w; GORUN_DEBUG=1 has the error name the ranks that had not made this call", cause)
	}
	return cause
}

// vain returns why the call cannot end: a rank that it needs has ended without
// making it, or waits for this one.
func (r *Rank) vain(call *backend.Call) error {
	j := r.job
	j.mu.Lock()
	defer j.mu.Unlock()
	r.tellOf(call)
	if s := r.stuck; s != nil && s.err != nil {
		return s.err
	}
	if len(j.ended) == 0 {
		return nil
	}
	call = r.open(call)
	var first *ending // of several, the one that the others may have followed
	who := 0
	for m, w := range r.world {
		e := j.ended[w]
		switch {
		case e == nil || !e.over || w == j.rank:
		case !call.Kind.PointToPoint() && e.calls[r.id] < r.calls.Load(),
			call.Kind.PointToPoint() && m == call.Root && time.Since(e.seen) > endedGrace:
			if first == nil || e.seen.Before(first.seen) {
				first, who = e, w
			}
		}
	}
	if first == nil {
		return nil
	}
	return &backend.EndedError{Rank: who, Cause: first.cause}
}

// pause is how a rank rests between two passes of the gate.
type pause struct {
	looks    int // rests so far
	patience time.Duration
	yielded  bool // by the library, in each look
	began    time.Time
	waited   time.Duration // since then
	total    time.Duration // before it
}

// wait rests once.
func (p *pause) wait(call *backend.Call) {
	p.looks++
	if p.began.IsZero() {
		p.began = time.Now()
	}
	p.waited = time.Since(p.began)
	waited := p.waited
	rest := min(max(waited/8, shortestNap), longestNap)
	if !call.Attended() { // the rank's own goroutines have the core
		if waited >= p.patience {
			call.Rest(rest)
		} else {
			goruntime.Gosched()
		}
		return
	}
	switch {
	case waited >= p.patience:
		nap(rest)
	case !p.yielded:
		yield()
	}
	if waited > selfish && p.looks%8 == 0 {
		goruntime.Gosched() // to this rank's own goroutines
	}
}

// yield gives the core to another process.
func yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// nap sleeps for less than a millisecond, which is what time.Sleep rounds up to. The
// kernel adds to it what the thread's slack is, 50 µs unless one says otherwise.
func nap(d time.Duration) {
	_, _, _ = unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, 1, 0)
	t := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&t, nil) // a signal ends it early
}
