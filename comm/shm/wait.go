package shm

import (
	"context"
	goruntime "runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/internal/stack"
)

// nap is the longest that a rank sleeps without looking at what could be wrong:
// how late it notices an abort elsewhere, a death or its context. In a communicator of more
// than manyRanks it is longer in proportion, so that looking takes no more of the cores.
const nap = 20 * time.Millisecond

// manyRanks is how many ranks may yield often and nap briefly.
const manyRanks = 128

// spins returns how often a waiting rank looks before it yields. With more ranks than
// cores the one waited for needs this core, so spinning only delays it.
func spins(ranks, cores int) int {
	if ranks <= cores {
		return 20_000
	}
	return 0
}

// yields is how often a waiting rank yields before it sleeps. In a communicator of more than
// manyRanks, where each time costs a turn of all the others, it is less by their square.
const yields = 50

// crowdRanks is from how many ranks on, that are more than the cores, they are a crowd: each
// sleeps until the last has come to the same point, which wakes all. So a call takes each rank
// two switches between processes, however many they are. Few ranks find each other sooner if
// each yields, and waits for the others one after the other.
const crowdRanks = 12

// arrive says, in a crowd, that this rank has come to point number round of those that count
// counts, which it has published. The last rank to come wakes the others.
func (r *Rank) arrive(count *atomic.Uint64, round uint64) {
	r.ring()
	if r.crowd && count.Add(1) == round*uint64(len(r.world)) && r.region.head.sleepers.Load() != 0 {
		r.region.head.open()
	}
}

// open wakes the ranks of a crowd.
func (h *head) open() {
	h.gate.Add(1)
	wakeAll(&h.gate)
}

// ring wakes the ranks that sleep until this one publishes something, which it
// has just done. An atomic store and this load are sequentially consistent, as
// are a sleeper's count and its last look: one of the two sees the other.
func (r *Rank) ring() {
	if r.mine.sleepers.Load() != 0 {
		r.mine.wake()
	}
}

func (m *member) wake() {
	m.bell.Add(1)
	wakeAll(&m.bell)
}

// await returns when word, which rank m publishes, is at least target. In an asynchronous
// call that no goroutine waits for it does not spin: the rank's goroutines use the core.
func (r *Rank) await(ctx context.Context, call *comm.Call, m int, word *atomic.Uint64, target uint64) error {
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

func (r *Rank) awaitLong(ctx context.Context, call *comm.Call, m int, word *atomic.Uint64, target uint64) error {
	done := ctx.Done()
	reported, wait := false, 0
	many := max(manyRanks, len(r.world))
	patience := yields * manyRanks * manyRanks / (many * many)
	if start := time.Now(); call.Attended() {
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
		if !r.sleep(call, m, word, target) {
			continue
		}
		r.job.answer()
		if reported {
			r.job.seg.AttendWait(r.job.rank, wait, call.Attended())
			continue
		}
		reported, wait = true, r.reportWait(call, m, time.Now().Add(-r.nap()))
		defer r.job.seg.EndWait(r.job.rank, wait)
	}
	return nil
}

// sleep returns when rank m has rung, or in a crowd's collective when all have come, or after
// a nap; late says that it was a nap.
func (r *Rank) sleep(call *comm.Call, m int, word *atomic.Uint64, target uint64) (late bool) {
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
func (r *Rank) reportWait(call *comm.Call, m int, since time.Time) int {
	f := call.Fingerprint()
	return r.job.seg.BeginWait(r.job.rank, control.Wait{
		Call:  control.Call{Comm: r.region.id, Seq: r.calls, What: f.What, Count: f.Count},
		Since: since, On: r.world[m], Text: call.String(), Site: call.Site(), Attended: call.Attended(),
	})
}

// answer tells the launcher, if it asks, whether this rank can do no more than wait.
func (j *job) answer() {
	number := j.seg.Question(j.rank)
	if number == 0 || !j.answering.TryLock() { // another goroutine answers
		return
	}
	defer j.answering.Unlock()
	j.seg.Answer(j.rank, number, stack.Acting() == "")
}

// trouble returns why rank m will never publish word, nil if it may.
func (r *Rank) trouble(ctx context.Context, call *comm.Call, done <-chan struct{}, m int, word *atomic.Uint64, target uint64) error {
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
			if cause := comm.Cancelled(ctx); cause != nil {
				err := comm.Late(cause, r.worlds(r.late(m, word, target)))
				r.Abort(err)
				r.leave()
				return err
			}
		default:
		}
	}
	return nil
}

// ended ends the communicator if a rank that this call waits for, now or later, has ended.
func (r *Rank) ended(call *comm.Call, m int, word *atomic.Uint64, target uint64) error {
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
		// What it published before it ended counts, so look again afterwards.
		if cause, ended := r.job.seg.HasEnded(r.world[l]); ended && slices.Contains(r.late(m, word, target), l) {
			r.abort(failure{kind: ranksEnd, a: r.world[l], text: cause})
			return r.failed(call)
		}
	}
	return nil
}

// late lists the ranks that have not published what this one waits for: all
// that are behind in the collective, or just m if it waits for a message.
func (r *Rank) late(m int, word *atomic.Uint64, target uint64) (ranks []int) {
	var of func(*member) *atomic.Uint64
	switch word {
	case &r.region.members[m].slots[r.calls&1].seq:
		of = func(p *member) *atomic.Uint64 { return &p.slots[r.calls&1].seq }
	case &r.region.members[m].step:
		of = func(p *member) *atomic.Uint64 { return &p.step }
	default:
		if word.Load() < target {
			return []int{m}
		}
		return nil
	}
	for i, peer := range r.region.members {
		if of(peer).Load() < target {
			ranks = append(ranks, i)
		}
	}
	return ranks
}

// worlds returns the world numbers of ranks.
func (r *Rank) worlds(ranks []int) []int {
	for i, m := range ranks {
		ranks[i] = r.world[m]
	}
	return ranks
}
