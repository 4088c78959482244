package mem

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/deadlock"
	"github.com/gorun-spmd/gorun/internal/stack"
)

// A DeadlockError says that ranks wait for each other. It ends all calls of all ranks.
type DeadlockError struct {
	Circle []int         // by world number: each waits for the next, and the last for the first
	Waits  []BlockedCall // of all ranks, by world number
	Idle   []int         // ranks that were in no call
}

// A BlockedCall is a call whose wait cannot end.
type BlockedCall struct {
	backend.Party
	On      int    // the first rank that has not come
	Untaken string // messages that have come and that the call does not take; "" if there are none
}

// Error names the calls of all ranks.
func (e *DeadlockError) Error() string {
	var b strings.Builder
	b.WriteString("ranks wait for each other: ")
	for _, r := range e.Circle {
		fmt.Fprintf(&b, "%d waits for ", r)
	}
	fmt.Fprintf(&b, "%d", e.Circle[0])
	for _, w := range e.Waits {
		fmt.Fprintf(&b, ", %v and waits for rank %d", w.Party, w.On)
		if w.Untaken != "" {
			fmt.Fprintf(&b, ", while %s", w.Untaken)
		}
	}
	for _, r := range e.Idle {
		fmt.Fprintf(&b, ", rank %d is in no call", r)
	}
	b.WriteString("; make the calls in an order in which one of them can end, and give each Send a Recv")
	if e.sends() {
		b.WriteString("; these ranks all send first: use SendRecv, which sends and receives at once")
	}
	return b.String()
}

// sends reports whether all ranks of the circle wait in a Send.
func (e *DeadlockError) sends() bool {
	in := map[int]bool{}
	for _, w := range e.Waits {
		if strings.HasPrefix(w.Call, backend.SendKind.String()+" ") || strings.HasPrefix(w.Call, backend.TaggedSendKind.String()+" ") {
			in[w.Rank] = true
		}
	}
	return !slices.ContainsFunc(e.Circle, func(r int) bool { return !in[r] })
}

// waiting is a call of one rank that waits for other ranks of its group.
type waiting struct {
	rank    *Rank
	ctx     context.Context
	call    *backend.Call
	need    need
	party   backend.Party // set once the watcher has asked for it, with untaken
	untaken string        // see BlockedCall
	alone   bool          // the call has no place in the order of the group's collectives
	at      int           // waits[at] of the job is this
}

// begin notes that this rank waits; the job's lock is held.
func (r *Rank) begin(ctx context.Context, call *backend.Call, n need) *waiting {
	r.waiting = waiting{rank: r, ctx: ctx, call: call, need: n}
	r.g.start(&r.waiting)
	return &r.waiting
}

// end notes that this rank no longer waits.
func (r *Rank) end() {
	r.g.stop(&r.waiting)
	r.waiting = waiting{}
}

func (j *job) start(w *waiting) {
	w.at = len(j.waits)
	j.waits = append(j.waits, w)
	j.changes++
}

func (j *job) stop(w *waiting) {
	last := len(j.waits) - 1
	j.waits[w.at] = j.waits[last]
	j.waits[w.at].at = w.at
	j.waits[last] = nil
	j.waits = j.waits[:last]
	j.changes++
}

// lookInterval is the time between two looks for ranks that wait for each other.
const lookInterval = 200 * time.Millisecond

// Watch looks for ranks that wait for each other until stop is called. Their calls, and
// all later ones, then fail with a *DeadlockError. A circle over several groups counts only
// while every goroutine of this process waits: a goroutine does not say which rank it works
// for, and may be about to make the missing call. Calls whose context has a deadline are
// left alone.
func Watch(ranks []*Rank) (stop func()) {
	ended := make(chan struct{})
	go func() {
		var w watcher
		w.job = ranks[0].g.job
		ticker := time.NewTicker(lookInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				w.look(len(ranks))
			}
		}
	}()
	return func() { close(ended) }
}

// A watcher looks at a job from time to time.
type watcher struct {
	*job
	circle  []int // found by the last look
	changes int   // job.changes at the last look
}

// look ends the calls of n ranks if some wait for each other and did so at the last look.
func (w *watcher) look(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	circle := w.find(n)
	again := circle != nil && w.circle != nil && w.changes == w.job.changes
	w.circle, w.changes = circle, w.job.changes
	switch {
	case !again || w.deadlock != nil:
		w.describe = false
	case !w.describe:
		w.describe = true
		w.wakeAll() // each waiting rank names its call and its line before the next look
	case slices.ContainsFunc(w.waits, func(c *waiting) bool { return c.party.Call == "" }): // some ranks have not named their call yet
	default:
		w.deadlock = w.explain(circle, n)
		w.failed.Store(true)
		w.wakeAll()
	}
}

// find returns ranks that wait for each other, nil if none do.
func (w *watcher) find(n int) []int {
	groups := map[*group]uint64{}
	late := map[need][]int{} // by meeting, as thousands of ranks may wait at one
	ranks := make([]deadlock.Rank, n)
	for i := range ranks {
		_, ended := w.ended[i]
		ranks[i].Elsewhere, ranks[i].Ended = true, ended
	}
	for i, wait := range w.waits {
		g := wait.rank.g
		if _, ok := groups[g]; !ok {
			groups[g] = uint64(len(groups))
		}
		order := groups[g] // the sequence of calls that this one belongs to
		if wait.alone {
			order = 1<<32 + uint64(i)
		}
		r := &ranks[g.world[wait.rank.rank]]
		missing, known := late[wait.need]
		if !known {
			missing = wait.need.missing()
			late[wait.need] = missing
		}
		_, bounded := wait.ctx.Deadline()
		if bounded || wait.need.done() || len(missing) == 0 || g.dead() != nil || backend.Cancelled(wait.ctx) != nil || w.anyEnded(missing) {
			r.Moves = true
			continue
		}
		on, attended := missing[0], wait.call.Attended()
		if wait.call.OfAny() {
			on = deadlock.Anyone
		}
		r.Waits = append(r.Waits, deadlock.Wait{Comm: order, On: on, Attended: attended})
		r.Elsewhere = r.Elsewhere && !attended
	}
	for c := range deadlock.Circles(ranks) {
		if len(c.Crossed) == 0 || stack.Acting() == "" {
			return c.Ranks
		}
	}
	return nil
}

// anyEnded reports whether one of some ranks has ended.
func (j *job) anyEnded(ranks []int) bool {
	return slices.ContainsFunc(ranks, func(r int) bool { _, ok := j.ended[r]; return ok })
}

// explain returns the error for n ranks, of which those in circle wait for each other.
func (w *watcher) explain(circle []int, n int) *DeadlockError {
	e := &DeadlockError{}
	for _, r := range circle {
		e.Circle = append(e.Circle, w.numbers[r])
	}
	idle := map[int]bool{}
	for r := range n {
		_, ended := w.ended[r]
		idle[r] = !ended
	}
	for _, wait := range w.waits {
		missing := wait.need.missing()
		if len(missing) == 0 {
			continue
		}
		idle[wait.rank.g.world[wait.rank.rank]] = false
		e.Waits = append(e.Waits, BlockedCall{wait.party, w.numbers[missing[0]], wait.untaken})
	}
	slices.SortStableFunc(e.Waits, func(a, b BlockedCall) int { return a.Rank - b.Rank })
	for r := range n {
		if idle[r] {
			e.Idle = append(e.Idle, w.numbers[r])
		}
	}
	return e
}
