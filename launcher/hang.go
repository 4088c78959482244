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
	wait    control.Wait
	waits   bool // for longer than a moment
	calls   uint64
	step    int
	ended   bool
	stopped bool // by a signal or a debugger
}

// same reports whether nothing has moved between two looks at one rank.
func (a *sighting) same(b *sighting) bool {
	return a.waits == b.waits && a.calls == b.calls && a.step == b.step && a.ended == b.ended &&
		(!a.waits || a.wait.Call == b.wait.Call && a.wait.On == b.wait.On && a.wait.Since.Equal(b.wait.Since))
}

// A watchdog tells a hang from slow work by the graph of who waits for whom: a
// waiting rank has one edge, to the first rank that has not come. Every edge must
// go before its rank can move, so a circle of them never moves, whatever else
// happens; nor does a rank that waits for one that has ended. A rank that computes
// has no edge: those that wait for it have a hope.
//
// A look may see an edge whose rank is about to drop it. So a hang counts only if
// it is the same in two looks, and its ranks neither run nor are ready to: a rank
// that is kept from running cannot drop its edge, and a rank that computes beside
// a waiting goroutine may yet send what others wait for. A circle over several
// communicators must stand longer: asynchronous calls on two of them may cross while
// their ranks do something else, without computing.
type watchdog struct {
	limit time.Duration // without any movement while some rank waits; 0: none
	see   func(rank int) sighting
	busy  func(ranks []int) bool // the process of one of them runs or is ready to; takes a moment

	last  []sighting
	still []int     // by rank: for how many looks it has been the same
	at    time.Time // of the last look
	moved time.Time // when something was last seen to have moved
}

// A hang is what a watchdog has found.
type hang struct {
	circle   []int // ranks each of which waits for the next, and the last for the first
	orphan   int   // waits for ended; -1 if that is not it
	ended    int
	still    time.Duration // how long nothing has moved, if it is neither of these
	laggards []int         // ranks whose stacks tell why
	seen     []sighting    // by rank
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
		w.last, w.still, w.at, w.moved = seen, make([]int, ranks), now, now
		return nil
	}
	w.last, w.at = seen, now
	for r := range seen {
		w.still[r]++
		if !seen[r].same(&before[r]) {
			w.still[r], w.moved = 0, now
		}
	}
	h := &hang{orphan: -1, seen: seen}
	if r := w.orphan(seen); r >= 0 {
		h.orphan, h.ended = r, seen[r].wait.On
		h.laggards = []int{r}
		return h
	}
	if h.circle = w.circle(seen); h.circle != nil {
		h.laggards = h.circle
		return h
	}
	h.still = now.Sub(w.moved)
	if w.limit == 0 || h.still < w.limit || !slices.ContainsFunc(seen, func(s sighting) bool { return s.waits && !s.ended }) {
		return nil
	}
	for r := range seen {
		if !seen[r].ended && !seen[r].waits {
			h.laggards = append(h.laggards, r)
		}
	}
	return h
}

// orphan returns a rank that waits for one that has ended, -1 if there is none.
func (w *watchdog) orphan(seen []sighting) int {
	for r := range seen {
		if s := &seen[r]; w.still[r] > 0 && edge(s) && s.wait.On != r && seen[s.wait.On].ended && w.still[s.wait.On] > 0 && !w.busy([]int{r}) {
			return r
		}
	}
	return -1
}

// edge reports whether s waits and could go on if it did not.
func edge(s *sighting) bool { return s.waits && !s.ended && !s.stopped }

// circle returns ranks that wait for each other, beginning with the lowest, nil if
// none do.
func (w *watchdog) circle(seen []sighting) []int {
	tried := make([]int, len(seen)) // the start, plus 1, of the walk that came by
	for start := range seen {
		r := start
		for tried[r] == 0 && w.still[r] > 0 && edge(&seen[r]) {
			tried[r] = start + 1
			r = seen[r].wait.On
		}
		if tried[r] != start+1 {
			continue
		}
		var ranks []int
		for next := r; len(ranks) == 0 || next != r; next = seen[next].wait.On {
			ranks = append(ranks, next)
		}
		crossing := slices.ContainsFunc(ranks, func(r int) bool { return seen[r].wait.Comm != seen[ranks[0]].wait.Comm })
		young := slices.ContainsFunc(ranks, func(r int) bool { return w.still[r] < crossingLooks })
		if crossing && young || w.busy(ranks) {
			continue
		}
		low := slices.Index(ranks, slices.Min(ranks))
		return append(ranks[low:len(ranks):len(ranks)], ranks[:low]...)
	}
	return nil
}
