package launcher

import (
	"slices"
	"time"

	"github.com/gorun-spmd/gorun/internal/control"
)

// lookInterval is the time between two looks at what the ranks wait for.
const lookInterval = time.Second

// A sighting is what one rank was seen doing.
type sighting struct {
	control.Waiting // for longer than a moment
	calls           uint64
	last            control.Call // the latest one, if there were calls
	step            int
	ended           bool
	stopped         bool // by a signal or a debugger
}

// waits reports whether the rank's program stands still in a call.
func (s *sighting) waits() bool {
	return slices.ContainsFunc(s.Waits, func(w control.Wait) bool { return w.Attended })
}

// same reports whether nothing has moved between two looks at one rank.
func (s *sighting) same(b *sighting) bool {
	return s.calls == b.calls && s.step == b.step && s.ended == b.ended && s.Elsewhere == b.Elsewhere &&
		slices.EqualFunc(s.Waits, b.Waits, func(v, w control.Wait) bool {
			return v.Call == w.Call && v.On == w.On && v.Attended == w.Attended && v.Since.Equal(w.Since)
		})
}

// A watchdog tells a hang from slow work by what waits for what.
//
// The nodes of that graph are waits: a rank has one for each communicator in which
// it has stood for a moment. A wait is for the first rank that has not come. It is
// stuck if that rank has ended; if that rank waits in the same communicator, whose
// calls it makes in order, and that wait is stuck; or if that rank has not begun the
// call, and every wait that its program stands still for is stuck. A rank whose program
// is not seen to stand still, because it computes, sleeps, or has another goroutine
// that makes calls, may come at any time: those that wait for it have a hope. What is
// stuck never moves, whatever else happens, and is either a circle or behind one, or
// behind a rank that has ended.
//
// A look may see a wait that is about to end. So a hang counts only if it is the same
// in two looks, and its ranks neither run nor are ready to: a rank that is kept from
// running cannot end its wait, and a rank that computes beside a waiting goroutine may
// yet send what others wait for. A circle over several communicators must stand longer:
// what a program will do next there is not known as well as within one.
type watchdog struct {
	limit time.Duration // without any movement while some rank waits; 0: none
	see   func(rank int) sighting
	busy  func(ranks []int) bool // the process of one of them runs or is ready to; takes a moment

	last  []sighting
	still []int       // by rank: for how many looks it has been the same
	since []time.Time // by rank: when it was first seen so
	at    time.Time   // of the last look
	moved time.Time   // when something was last seen to have moved
}

// A hang is what a watchdog has found.
type hang struct {
	circle   []int // ranks each of which waits for the next, and the last for the first
	orphan   int   // waits for ended; -1 if that is not it
	ended    int
	still    time.Duration // how long nothing has moved, if it is neither of these
	laggards []int         // ranks whose stacks tell why
	seen     []sighting    // by rank
	since    []time.Time   // by rank: when it was first seen so
}

// missed is how late a look may be before the time since the last one does not count:
// gorun itself did not run.
const missed = 5 * lookInterval

// crossingLooks is for how many looks a circle over several communicators must stand.
const crossingLooks = 4

// look returns what is wrong, nil if nothing is.
func (w *watchdog) look(now time.Time, ranks int) *hang {
	seen := make([]sighting, ranks)
	for r := range seen {
		seen[r] = w.see(r)
	}
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
			w.still[r], w.since[r], w.moved = 0, now, now
		}
	}
	h := &hang{orphan: -1, seen: seen, since: w.since}
	if r, gone := w.orphan(seen); r >= 0 {
		h.orphan, h.ended = r, gone
		h.laggards = []int{r}
		return h
	}
	if h.circle = w.circle(seen); h.circle != nil {
		h.laggards = h.circle
		return h
	}
	h.still = now.Sub(w.moved)
	if w.limit == 0 || h.still < w.limit || !slices.ContainsFunc(seen, func(s sighting) bool { return len(s.Waits) > 0 && !s.ended }) {
		return nil
	}
	h.laggards = h.outside()
	return h
}

// outside returns the ranks that are not seen to stand still in a call; if all are,
// those that may have more to do.
func (h *hang) outside() []int {
	that := func(is func(s *sighting) bool) (ranks []int) {
		for r := range h.seen {
			if s := &h.seen[r]; !s.ended && is(s) {
				ranks = append(ranks, r)
			}
		}
		return ranks
	}
	if ranks := that(func(s *sighting) bool { return !s.waits() }); ranks != nil {
		return ranks
	}
	return that(func(s *sighting) bool { return s.Elsewhere })
}

// orphan returns a rank that waits for one that has ended, and that; -1 if there is none.
func (w *watchdog) orphan(seen []sighting) (waits, ended int) {
	for r := range seen {
		if w.still[r] == 0 || seen[r].ended || seen[r].stopped {
			continue
		}
		for _, it := range seen[r].Waits {
			if it.On != r && seen[it.On].ended && w.still[it.On] > 0 && !w.busy([]int{r}) {
				return r, it.On
			}
		}
	}
	return -1, 0
}

// A node is one wait of one rank: its place in what was seen.
type node struct{ rank, wait int }

// circle returns ranks that wait for each other, beginning with the lowest, nil if
// none do.
func (w *watchdog) circle(seen []sighting) []int {
	stuck := w.stuck(seen)
	tried := map[node]node{} // to the start of the walk that came by
	for r := range seen {
		for i := range seen[r].Waits {
			start := node{r, i}
			at := start
			for stuck[at] && tried[at] == (node{}) {
				tried[at] = node{start.rank, start.wait + 1} // the zero node is none
				at = needs(seen, at)[0]
			}
			if !stuck[at] || tried[at] != (node{start.rank, start.wait + 1}) {
				continue
			}
			ranks := []int{at.rank}
			for next := needs(seen, at)[0]; next != at; next = needs(seen, next)[0] {
				ranks = append(ranks, next.rank)
			}
			if !w.certain(seen, at) {
				continue
			}
			low := slices.Index(ranks, slices.Min(ranks))
			return append(ranks[low:len(ranks):len(ranks)], ranks[:low]...)
		}
	}
	return nil
}

// stuck returns the waits that cannot end, but for those behind a rank that has.
func (w *watchdog) stuck(seen []sighting) map[node]bool {
	stuck := map[node]bool{}
	behind := map[node][]node{}
	var free []node
	for r := range seen {
		for i := range seen[r].Waits {
			n, of := node{r, i}, needs(seen, node{r, i})
			stuck[n] = w.still[r] > 0 && !seen[r].ended && !seen[r].stopped && len(of) > 0
			if !stuck[n] {
				free = append(free, n)
			}
			for _, m := range of {
				behind[m] = append(behind[m], n)
			}
		}
	}
	for ; len(free) > 0; free = free[1:] {
		for _, n := range behind[free[0]] {
			if stuck[n] {
				stuck[n] = false
				free = append(free, n)
			}
		}
	}
	return stuck
}

// needs returns the waits of which one must end before n can, as far as is known;
// none if it is not.
func needs(seen []sighting, n node) (of []node) {
	it := &seen[n.rank].Waits[n.wait]
	on := &seen[it.On]
	for i := range on.Waits {
		if on.Waits[i].Comm == it.Comm {
			return []node{{it.On, i}}
		}
	}
	if on.Elsewhere {
		return nil
	}
	for i := range on.Waits {
		if on.Waits[i].Attended {
			of = append(of, node{it.On, i})
		}
	}
	return of
}

// certain reports whether a circle that n, which is stuck, is part of will not go away.
func (w *watchdog) certain(seen []sighting, n node) bool {
	found := []node{n}
	var ranks []int
	for i := 0; i < len(found); i++ {
		at := found[i]
		ranks = append(ranks, at.rank)
		for _, next := range needs(seen, at) {
			if seen[next.rank].Waits[next.wait].Comm != seen[at.rank].Waits[at.wait].Comm && min(w.still[at.rank], w.still[next.rank]) < crossingLooks {
				return false
			}
			if !slices.Contains(found, next) {
				found = append(found, next)
			}
		}
	}
	slices.Sort(ranks)
	return !w.busy(slices.Compact(ranks))
}
