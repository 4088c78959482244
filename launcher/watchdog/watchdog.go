// Package watchdog tells a job that hangs from one that is slow, by what its ranks wait for
// and what has moved. It sees a job through functions, so that tests need no process.
package watchdog

import (
	"slices"
	"time"

	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/internal/deadlock"
)

// Interval is the time between two looks at what the ranks wait for.
const Interval = time.Second

// A Sighting is what one rank was seen doing.
type Sighting struct {
	control.Waiting // for longer than a moment
	Calls           uint64
	Moves           uint64       // another number if something of a message has come
	Last            control.Call // the latest one, if there were calls
	Step            int
	Saved           time.Time
	Joined          bool // the program uses package runtime
	Ended           bool
	Stopped         bool // by a signal or a debugger
}

// waits reports whether the rank's program stands still in a call.
func (s *Sighting) waits() bool {
	return slices.ContainsFunc(s.Waits, func(w control.Wait) bool { return w.Attended })
}

// same reports whether two looks at one rank have seen the same.
func (s *Sighting) same(b *Sighting) bool {
	return s.still(b) && slices.EqualFunc(s.Waits, b.Waits, func(v, w control.Wait) bool { return v.On == w.On })
}

// still reports whether nothing has moved between two looks at one rank. Over MPI a rank for which another waits may not be known for
// a moment: that is no movement.
func (s *Sighting) still(b *Sighting) bool {
	return s.Calls == b.Calls && s.Moves == b.Moves && s.Step == b.Step && s.Saved.Equal(b.Saved) &&
		s.Joined == b.Joined && s.Ended == b.Ended && s.Elsewhere == b.Elsewhere &&
		slices.EqualFunc(s.Waits, b.Waits, func(v, w control.Wait) bool {
			return v.Call == w.Call && v.Attended == w.Attended && v.Since.Equal(w.Since)
		})
}

// A Watchdog tells a hang from slow work by what waits for what: see package deadlock
// for the graph.
//
// A look may see a wait that is about to end. So a hang counts only if it is the same
// in two looks, and its ranks neither run nor are ready to: a rank that is kept from
// running cannot end its wait.
//
// Within one communicator no more is needed, since a rank makes its calls in order. If
// a circle crosses communicators, another goroutine of a rank may yet make the call that
// others wait for. Such a circle must stand longer, and the ranks are asked whether they
// have a goroutine that may act (stack.Acting): it counts once all have said no.
type Watchdog struct {
	Limit   time.Duration // without any movement; 0: none
	Always  bool          // the limit also holds while no rank waits in a call
	Setting string        // what sets the limit; "": --hang-timeout
	Circles bool          // look for ranks that wait for each other, or for one that has ended
	Alone   bool          // look for ranks too that are in no call, and whose goroutines wait for each other: they answer when asked

	See  func(rank int) Sighting
	Busy func(ranks []int) bool // the process of one of them runs or is ready to; takes a moment

	Ask       func(rank int, number uint64)      // whether it can do no more than wait
	OnlyWaits func(rank int, number uint64) bool // it has answered that question with a yes

	looks uint64 // so far
	last  []Sighting
	still []int       // by rank: for how many looks it has been the same
	since []time.Time // by rank: when it was first seen so
	at    time.Time   // of the last look
	moved time.Time   // when something was last seen to have moved
}

// A Hang is what a watchdog has found.
type Hang struct {
	circle   []int // ranks each of which waits for the next, and the last for the first
	orphan   int   // waits for ended; -1 if that is not it
	ended    int
	stuck    int           // can do nothing more, though it is in no call; -1 if that is not it
	still    time.Duration // how long nothing has moved, if it is neither of these
	setting  string        // what says how long it may
	Laggards []int         // ranks whose stacks tell why
	seen     []Sighting    // by rank
	since    []time.Time   // by rank: when it was first seen so
}

// missed is how late a look may be before the time since the last one does not count:
// gorun itself did not run.
const missed = 5 * Interval

// crossingLooks is for how many looks a circle that crosses communicators must stand.
const crossingLooks = 4

// aloneLooks is for how many looks a rank that is in no call must stand until it is asked whether it can do anything.
const aloneLooks = 10

// Look returns what is wrong, nil if nothing is.
func (w *Watchdog) Look(now time.Time, ranks int) *Hang {
	seen := make([]Sighting, ranks)
	for r := range seen {
		seen[r] = w.See(r)
	}
	w.looks++
	before := w.last
	if before == nil || now.Sub(w.at) > missed {
		w.last, w.at, w.moved = seen, now, now
		w.still, w.since = make([]int, ranks), slices.Repeat([]time.Time{now}, ranks)
		return nil
	}
	w.last, w.at = seen, now
	for r := range seen {
		w.still[r]++
		if !seen[r].same(&before[r]) {
			w.still[r], w.since[r] = 0, now
		}
		if !seen[r].still(&before[r]) {
			w.moved = now
		}
	}
	h := &Hang{orphan: -1, stuck: -1, setting: w.Setting, seen: seen, since: w.since}
	if w.Circles {
		if h.orphan, h.ended = w.orphan(seen); h.orphan >= 0 {
			h.Laggards = []int{h.orphan}
			return h
		}
		if h.circle = w.circle(seen); h.circle != nil {
			h.Laggards = h.circle
			return h
		}
		if h.stuck = w.stuck(seen); h.stuck >= 0 {
			h.Laggards = []int{h.stuck}
			return h
		}
	}
	h.still = now.Sub(w.moved)
	if w.Limit == 0 || h.still < w.Limit || !w.counts(seen) {
		return nil
	}
	h.Laggards = h.outside()
	return h
}

// counts reports whether the limit holds for ranks that do not move: if one waits in a
// call; else only where it was asked for, since ranks may compute for long, and all ranks
// that run must be such that their calls and steps can be seen.
func (w *Watchdog) counts(seen []Sighting) bool {
	if slices.ContainsFunc(seen, func(s Sighting) bool { return len(s.Waits) > 0 && !s.Ended }) {
		return true
	}
	return w.Always && !slices.ContainsFunc(seen, func(s Sighting) bool { return !s.Joined && !s.Ended })
}

// outside returns the ranks that are not seen to stand still in a call; if all are,
// those that have more waits than are recorded; if none has, all that have not ended.
func (h *Hang) outside() []int {
	that := func(is func(s *Sighting) bool) (ranks []int) {
		for r := range h.seen {
			if s := &h.seen[r]; !s.Ended && is(s) {
				ranks = append(ranks, r)
			}
		}
		return ranks
	}
	if ranks := that(func(s *Sighting) bool { return !s.waits() }); ranks != nil {
		return ranks
	}
	if ranks := that(func(s *Sighting) bool { return s.Elsewhere }); ranks != nil {
		return ranks
	}
	return that(func(*Sighting) bool { return true })
}

// orphan returns a rank that waits for one that has ended, and that; -1 if there is none.
func (w *Watchdog) orphan(seen []Sighting) (waits, ended int) {
	for r := range seen {
		if w.still[r] == 0 || seen[r].Ended || seen[r].Stopped {
			continue
		}
		for _, it := range seen[r].Waits {
			if it.On >= 0 && it.On != r && seen[it.On].Ended && w.still[it.On] > 0 && !w.Busy([]int{r}) {
				return r, it.On
			}
		}
	}
	return -1, 0
}

// stuck returns a rank that is in no call and whose goroutines wait for each other, -1 if there is none. Since a rank may be out
// of calls for long, it is asked only now and then, and has until the next question to answer.
func (w *Watchdog) stuck(seen []Sighting) int {
	for r := range seen {
		s := &seen[r]
		if !w.Alone || w.still[r] < aloneLooks || !s.Joined || s.Ended || s.Stopped || len(s.Waits) > 0 {
			continue
		}
		if since := w.still[r] % aloneLooks; since == 0 {
			w.Ask(r, w.looks)
		} else if w.OnlyWaits(r, w.looks-uint64(since)) && !w.Busy([]int{r}) {
			return r
		}
	}
	return -1
}

// circle returns ranks that wait for each other, beginning with the lowest, nil if
// none do.
func (w *Watchdog) circle(seen []Sighting) []int {
	ranks := make([]deadlock.Rank, len(seen))
	for r := range seen {
		s := &seen[r]
		ranks[r] = deadlock.Rank{Elsewhere: s.Elsewhere, Moves: w.still[r] == 0 || s.Stopped, Ended: s.Ended && w.still[r] > 0}
		for _, it := range s.Waits {
			ranks[r].Waits = append(ranks[r].Waits, deadlock.Wait{Comm: it.Comm, On: it.On, Attended: it.Attended})
		}
	}
	for c := range deadlock.Circles(ranks) {
		if w.certain(&c) {
			return c.Ranks
		}
	}
	return nil
}

// certain reports whether a circle will not go away.
func (w *Watchdog) certain(c *deadlock.Circle) bool {
	certain := true
	for _, r := range c.Crossed {
		// The answer to the last look's question counts: the rank has not moved since.
		certain = certain && w.still[r] >= crossingLooks && w.OnlyWaits(r, w.looks-1)
	}
	if certain && !w.Busy(c.Involved) {
		return true
	}
	// Who is asked looks less often from then on at what it waits for: where many processes share a core, it may be ready to run most of
	// the time for nothing else. It is asked after Busy, since to answer keeps it busy.
	for _, r := range c.Involved {
		if w.still[r] >= crossingLooks-1 {
			w.Ask(r, w.looks)
		}
	}
	return false
}
