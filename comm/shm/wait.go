package shm

import (
	"context"
	goruntime "runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/stack"
)

// nap is the longest time that a rank sleeps before it looks for an abort elsewhere, a dead rank
// or the end of its context. In a communicator of more than manyRanks it grows in proportion, so
// that looking takes the same share of the cores.
const nap = 20 * time.Millisecond

// shortestRest is the shortest time between two looks of an asynchronous call that no goroutine
// waits for. The rests grow to a 20th of a nap.
const shortestRest = 20 * time.Microsecond

// manyRanks is the largest number of ranks that yield often and nap briefly.
const manyRanks = 128

// spins returns how often a waiting rank looks before it yields. With more ranks than
// cores the one waited for needs this core, so spinning only delays it.
func spins(ranks, cores int) int {
	if ranks <= cores {
		return 20_000
	}
	return 0
}

// yields is how often a waiting rank yields before it sleeps. With n ranks, more than manyRanks,
// each yield costs a turn of all the others; there it is yields·manyRanks/n.
const yields = 50

// crowdRanks is the number of ranks from which a communicator is a crowd, if ranks outnumber
// cores. In a crowd each rank sleeps until the last one has come to the same point and wakes
// all. So a call costs each rank two switches between processes, however many ranks there are.
// Fewer ranks find each other sooner if each yields and waits for the others one by one.
const crowdRanks = 12

// arrive wakes the ranks that wait for what this one has just published. In a crowd it adds this rank to count, and
// reports whether it is the last to come to the point of this number: the last one has to open the gate.
func (r *Rank) arrive(count *atomic.Uint64, point uint64) (last bool) {
	r.ring()
	return r.crowd && count.Add(1) == point*uint64(len(r.world))
}

// open wakes the ranks of a crowd.
func (h *head) open() {
	h.gate.Add(1)
	wakeAll(&h.gate)
}

// openIfAsleep wakes the ranks of a crowd if some sleep.
func (h *head) openIfAsleep() {
	if h.sleepers.Load() != 0 {
		h.open()
	}
}

// ring wakes the ranks that sleep until this one publishes something, which it
// has just done. The store of the published word and the load of sleepers are sequentially
// consistent, and so are a sleeper's count and its last look: one of the two sees the other.
func (r *Rank) ring() {
	if r.mine.sleepers.Load() != 0 {
		r.mine.wake()
	}
}

func (m *member) wake() {
	m.bell.Add(1)
	wakeAll(&m.bell)
}

// await returns when word, which rank m publishes, is at least target. For an asynchronous call that no goroutine
// waits for it does not spin: the rank's goroutines use the core.
func (r *Rank) await(ctx context.Context, call *backend.Call, m int, word *atomic.Uint64, target uint64) error {
	if word.Load() >= target {
		return nil
	}
	if call.Attended() {
		for range r.job.spins {
			if word.Load() >= target {
				return nil
			}
		}
	}
	return r.awaitLong(ctx, call, m, word, target)
}

// awaitLong is await after the spinning: it yields, then sleeps, and reports a long wait to the launcher.
func (r *Rank) awaitLong(ctx context.Context, call *backend.Call, m int, word *atomic.Uint64, target uint64) error {
	done := ctx.Done()
	reported, wait := false, 0
	patience := yields * manyRanks / max(manyRanks, len(r.world))
	start := time.Now()
	if call.Attended() {
		defer func() { r.job.seg.AddWaited(r.job.rank, time.Since(start)) }()
	}
	for i := 0; word.Load() < target; i++ {
		if err := r.trouble(ctx, call, done, m, word, target); err != nil {
			return err
		}
		if i < patience {
			own := !call.Attended()
			if own || i%8 == 7 {
				goruntime.Gosched() // to this rank's own goroutines
			}
			if !own {
				r.yield()
			}
			continue
		}
		if !call.Attended() {
			waited := time.Since(start)
			call.Rest(min(max(waited/8, shortestRest), r.nap()/20))
			if waited < r.nap() {
				continue
			}
		} else if !r.sleep(call, m, word, target) {
			continue
		}
		r.job.answer()
		if reported {
			r.job.seg.AttendWait(r.job.rank, wait, call.Attended())
			continue
		}
		if late := r.late(m, word, target); len(late) > 0 {
			m = late[0]
		}
		reported, wait = true, r.reportWait(call, m, time.Now().Add(-r.nap()))
		defer r.job.seg.EndWait(r.job.rank, wait)
	}
	return nil
}

// sleep returns when rank m rings, in a crowd's collective when all have come, or after a nap;
// late says that the nap is over.
func (r *Rank) sleep(call *backend.Call, m int, word *atomic.Uint64, target uint64) (late bool) {
	peer := r.region.members[m]
	bell, sleepers := &peer.bell, &peer.sleepers
	if r.crowd && !call.Kind.PointToPoint() {
		bell, sleepers = &r.region.head.gate, &r.region.head.sleepers
	}
	sleepers.Add(1)
	defer sleepers.Add(^uint32(0))
	rung := bell.Load()
	if word.Load() >= target {
		return false
	}
	return sleepWhile(bell, rung, r.nap())
}

// nap is how long this rank sleeps at most.
func (r *Rank) nap() time.Duration { return nap * time.Duration(max(1, len(r.world)/manyRanks)) }

// reportWait tells the launcher of a long wait, and returns the wait's number.
func (r *Rank) reportWait(call *backend.Call, m int, since time.Time) int {
	f := call.Fingerprint()
	return r.job.seg.BeginWait(r.job.rank, control.Wait{
		Call:  control.Call{Comm: r.region.id, Seq: r.calls, What: f.What, Count: f.Count},
		Since: since, On: r.world[m], Text: call.String(), Site: call.Site(), Group: r.name(), Attended: call.Attended(),
	})
}

// name says in a report of waits which communicator this is.
func (r *Rank) name() string {
	if r.parent == nil {
		return "world"
	}
	return control.GroupOf(r.world)
}

// answer tells the launcher, if it asks, whether all goroutines of this rank wait.
func (j *job) answer() (asked bool) {
	number := j.seg.Question(j.rank)
	if number == 0 || !j.answering.TryLock() { // another goroutine answers
		return number != 0
	}
	defer j.answering.Unlock()
	j.seg.Answer(j.rank, number, stack.Acting() == "")
	return true
}

// trouble returns the error for which rank m will never publish word, nil if it still may or
// already has: a failure that comes after the ranks have all come does not fail their call.
func (r *Rank) trouble(ctx context.Context, call *backend.Call, done <-chan struct{}, m int, word *atomic.Uint64, target uint64) error {
	if r.job.alarm.Load() != r.quiet && word.Load() >= target {
		return nil
	}
	if err := r.alarmed(call); err != nil {
		return err
	}
	if now := r.job.alarm.Load(); now != r.allAlive {
		if err := r.ended(call, m, word, target); err != nil {
			return err
		}
	}
	if done != nil {
		select {
		case <-done:
			if cause := backend.Cancelled(ctx); cause != nil {
				return r.quit(backend.Late(cause, ints.Pick(r.world, r.late(m, word, target))))
			}
		default:
		}
	}
	return nil
}

// ended ends the communicator if a rank that this call waits for, now or later, has ended.
func (r *Rank) ended(call *backend.Call, m int, word *atomic.Uint64, target uint64) error {
	now, alive := r.job.alarm.Load(), true
	for _, w := range r.world {
		_, ended := r.job.seg.HasEnded(w)
		alive = alive && !ended
	}
	if alive {
		r.allAlive = now
		return nil
	}
	for _, l := range r.late(m, word, target) {
		// A rank may publish and then end, so look at its word again.
		if cause, ended := r.job.seg.HasEnded(r.world[l]); ended && slices.Contains(r.late(m, word, target), l) {
			r.abort(failure{kind: ranksEnd, a: r.world[l], text: cause})
			return r.failed(call)
		}
	}
	return nil
}

// late lists the ranks that have not come to the point where this one waits: all that are
// behind in the collective, or just m if it waits for a message.
func (r *Rank) late(m int, word *atomic.Uint64, target uint64) (ranks []int) {
	var of func(m int) *atomic.Uint64
	switch word {
	case &r.region.head.settled:
		if word.Load() < target && r.region.head.begun.Load() >= target*uint64(len(r.world)) {
			return []int{int(r.region.head.settler.Load())}
		}
		fallthrough
	case &r.region.slot(m, r.calls).seq:
		of = func(m int) *atomic.Uint64 { return &r.region.slot(m, r.calls).seq }
	case &r.region.members[m].step:
		of = func(m int) *atomic.Uint64 { return &r.region.members[m].step }
	default:
		if word.Load() < target {
			return []int{m}
		}
		return nil
	}
	for i := range r.world {
		if of(i).Load() < target {
			ranks = append(ranks, i)
		}
	}
	return ranks
}
