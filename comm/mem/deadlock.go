package mem

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gorun-spmd/gorun/comm"
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
	comm.Party
	On int // the first rank that has not come
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
		if strings.HasPrefix(w.Call, comm.SendKind.String()+" ") {
			in[w.Rank] = true
		}
	}
	return !slices.ContainsFunc(e.Circle, func(r int) bool { return !in[r] })
}

// waiting is the call that one rank waits in, in one group.
type waiting struct {
	rank  *Rank
	ctx   context.Context
	call  *comm.Call
	need  need
	party comm.Party // set once the watcher has asked for it
	alone bool       // the call is not one of those that the group makes in order
}

// begin notes that this rank waits; the job's lock is held.
func (r *Rank) begin(ctx context.Context, call *comm.Call, it need) *waiting {
	r.waiting = waiting{rank: r, ctx: ctx, call: call, need: it}
	r.g.start(&r.waiting)
	return &r.waiting
}

// end notes that this rank no longer waits.
func (r *Rank) end() {
	r.g.stop(&r.waiting)
	r.waiting = waiting{}
}

func (j *job) start(w *waiting) {
	j.waits = append(j.waits, w)
	j.changes++
}

func (j *job) stop(w *waiting) {
	i := slices.Index(j.waits, w)
	j.waits = slices.Delete(j.waits, i, i+1)
	j.changes++
}

// lookInterval is the time between two looks for ranks that wait for each other.
const lookInterval = 200 * time.Millisecond

// Watch looks for ranks that wait for each other until stop is called. Their calls, and
// all later ones, then fail with a *DeadlockError. Ranks that wait for each other over
// several groups count only once no goroutine of this process may act, as the others do
// not know which rank it is a part of. A context with a deadline ends its calls by itself.
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
	circle  []int // that was seen last
	changes int   // of waits, when it was
}

// look ends the calls of n ranks if some wait for each other, as they did at the last look.
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
		w.wake.Broadcast() // who waits knows the line of its call, and says so before the next look
	case slices.ContainsFunc(w.waits, func(it *waiting) bool { return it.party.Call == "" }): // some ranks have not named their call yet
	default:
		w.deadlock = w.explain(circle, n)
		w.failed.Store(true)
		w.wake.Broadcast()
	}
}

// find returns ranks that wait for each other, nil if none do.
func (w *watcher) find(n int) []int {
	groups := map[*group]uint64{}
	ranks := make([]deadlock.Rank, n)
	for i := range ranks {
		ranks[i].Elsewhere = true
	}
	for i, it := range w.waits {
		g := it.rank.g
		if _, ok := groups[g]; !ok {
			groups[g] = uint64(len(groups))
		}
		order := groups[g] // of calls, in which this one is made
		if it.alone {
			order = 1<<32 + uint64(i)
		}
		r := &ranks[g.world[it.rank.rank]]
		missing := it.need.missing()
		_, bounded := it.ctx.Deadline()
		if bounded || it.need.done() || len(missing) == 0 || g.dead() != nil || comm.Cancelled(it.ctx) != nil || w.anyEnded(missing) {
			r.Moves = true
			continue
		}
		attended := it.call.Attended()
		r.Waits = append(r.Waits, deadlock.Wait{Comm: order, On: missing[0], Attended: attended})
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

// explain is the error about n ranks, some of which wait in a circle.
func (w *watcher) explain(circle []int, n int) *DeadlockError {
	e := &DeadlockError{Circle: circle}
	idle := map[int]bool{}
	for r := range n {
		_, ended := w.ended[r]
		idle[r] = !ended
	}
	for _, it := range w.waits {
		missing := it.need.missing()
		if len(missing) == 0 {
			continue
		}
		idle[it.party.Rank] = false
		e.Waits = append(e.Waits, BlockedCall{it.party, missing[0]})
	}
	slices.SortStableFunc(e.Waits, func(a, b BlockedCall) int { return a.Rank - b.Rank })
	for r := range n {
		if idle[r] {
			e.Idle = append(e.Idle, r)
		}
	}
	return e
}
