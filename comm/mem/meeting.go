package mem

import (
	"context"
	"errors"
	"fmt"

	"github.com/gorun-spmd/gorun/comm/backend"
)

// A meeting is where all ranks of a group show each other a value. A group has two and uses
// them in turn: a rank that comes to one no longer reads what was shown at the other, and no
// rank comes to the other again before all have come to this one. It is guarded by the job's
// lock.
type meeting struct {
	g       *group
	number  int // of the group's meetings
	arrived int

	// Of a collective. Once all ranks have come, none of them fails alone.
	print  backend.Fingerprint // of the call of the first to come
	differ bool                // a call has another one
	parts  int                 // into how many the work is divided
	next   int                 // the part that nobody has taken yet
	left   int                 // parts that are not done
	uneven bool                // a rank does not send as much as another expects
	over   bool                // nothing is left to do, or err is not nil
	err    error               // of the call, on all ranks
}

func (m *meeting) full() bool { return m.arrived == len(m.g.ranks) }

// done reports whether all have come, which is what a call waits for that may still fail.
func (m *meeting) done() bool { return m.full() }

func (m *meeting) missing() (late []int) {
	for i := range m.g.ranks {
		if m.g.ranks[i].turn <= m.number {
			late = append(late, m.g.world[i])
		}
	}
	return late
}

// shown returns what a rank has shown.
func (m *meeting) shown(rank int) any { return m.g.ranks[rank].shown[m.number%2] }

// arrive comes to the meeting in progress and shows a value; the job's lock is held. The last to
// come ends it: meetings that are no collective have no more to do.
func (r *Rank) arrive(value any) *meeting {
	g := r.g
	m := &g.meetings[g.turn%2]
	if m.number != g.turn || m.arrived == 0 {
		*m = meeting{g: g, number: g.turn}
	}
	r.shown[g.turn%2] = value
	r.turn++
	if m.arrived++; m.full() {
		g.turn++
	}
	return m
}

// meet shows every rank a value, for call. Once all have come, no rank fails.
func (r *Rank) meet(ctx context.Context, call *backend.Call, value any) (*meeting, error) {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	if e := r.g.dead(); e != nil {
		return nil, e
	}
	m := r.arrive(value)
	if m.full() {
		r.g.wake()
		return m, nil
	}
	return m, r.wait(ctx, call, m)
}

// gather is meet where all ranks are on their way, so it watches for nothing else.
func (r *Rank) gather(value any) *meeting {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	m := r.arrive(value)
	if m.full() {
		r.g.wake()
	}
	for !m.full() {
		r.wake.Wait()
	}
	return m
}

// Do carries out one call.
func (r *Rank) Do(ctx context.Context, call *backend.Call) error {
	if err := call.Carried("comm/mem", patterns); err != nil {
		r.Abort(err)
		return err
	}
	if call.Kind.PointToPoint() {
		return r.message(ctx, call)
	}
	m, err := r.collective(ctx, call)
	if err == nil && m.differ {
		err = r.mismatch(m)
	}
	return err
}

// collective meets the other ranks, and does what it can of the work.
func (r *Rank) collective(ctx context.Context, call *backend.Call) (*meeting, error) {
	print := call.Fingerprint()
	g := r.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.dead(); e != nil {
		return nil, e
	}
	m := r.arrive(call)
	if m.arrived == 1 {
		m.print = print
	}
	m.differ = m.differ || m.print != print
	if m.full() {
		m.begin(r.rank)
	} else if err := r.wait(ctx, call, m); err != nil {
		return nil, err
	}
	for !m.over {
		switch {
		case m.next < m.parts:
			r.work(m)
		case m.left == 0:
			m.end()
		default:
			r.wake.Wait()
		}
	}
	return m, m.err
}

// begin divides the work, and wakes as many ranks beside rank as may share it; the job's lock is
// held.
func (m *meeting) begin(rank int) {
	g := m.g
	if !m.differ {
		for i := range g.ranks {
			g.calls[i] = m.shown(i).(*backend.Call)
		}
		var helpers int
		m.parts, helpers = m.divide()
		m.left = m.parts
		for i := range helpers {
			g.ranks[(rank+1+i)%len(g.ranks)].wake.Signal()
		}
	}
}

// work does a part of the work; the job's lock is held.
func (r *Rank) work(m *meeting) {
	part := m.next
	m.next++
	w := m.g.worker()
	m.g.mu.Unlock()
	ok, even := false, true
	defer func() { // a function of the user's may not return
		m.g.mu.Lock()
		m.g.workers = append(m.g.workers, w)
		m.uneven = m.uneven || !even
		if m.left--; ok {
			return
		}
		m.left -= m.parts - m.next
		m.next = m.parts
		r.abort(errors.New("the function of a reduction did not return (a panic, or runtime.Goexit)"))
		m.err = r.g.dead()
		if m.left == 0 {
			m.end()
		}
	}()
	even = w.compute(m, part)
	ok = true
}

// end lets all ranks go on; the job's lock is held.
func (m *meeting) end() {
	if m.uneven && m.err == nil {
		m.err = agree(m.g.calls, m.g.number)
	}
	clear(m.g.calls)
	m.over = true
	m.g.wake()
}

// worker returns room for a part of the work; the job's lock is held.
func (j *job) worker() *worker {
	n := len(j.workers)
	if n == 0 {
		return new(worker)
	}
	w := j.workers[n-1]
	j.workers = j.workers[:n-1]
	return w
}

// mismatch returns the error that two calls of a meeting differ. All ranks have seen it.
func (r *Rank) mismatch(m *meeting) error {
	calls := make([]*backend.Call, r.Size())
	other := 0 // the first that differs from that of rank 0
	for i := range calls {
		calls[i] = m.shown(i).(*backend.Call)
		if other == 0 && calls[i].Fingerprint() != calls[0].Fingerprint() {
			other = i
		}
	}
	sites := r.gather(calls[r.rank].Site())
	party := func(i int) backend.Party {
		p := calls[i].Party(r.g.number(i))
		p.Site = fmt.Sprint(sites.shown(i))
		return p
	}
	err := backend.Mismatch(party(0), party(other))
	r.gather(nil)
	return err
}
