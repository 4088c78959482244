package shm

import (
	"context"
	goruntime "runtime"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/control"
	"golang.org/x/sys/unix"
)

// nap is the longest that a rank sleeps without looking at what could be wrong:
// how late it notices an abort elsewhere, a death or its context.
const nap = 20 * time.Millisecond

// The operations of futex(2), for memory shared between processes.
const (
	futexWait = 0
	futexWake = 1
)

// spins returns how often a waiting rank looks before it yields. With more ranks than
// cores the one waited for needs this core, so spinning only delays it.
func spins(ranks, cores int) int {
	if ranks <= cores {
		return 20_000
	}
	return 0
}

// yields is how often a waiting rank yields before it sleeps.
const yields = 50

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
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&m.bell)), futexWake, 1<<30, 0, 0, 0)
}

// await returns when word, which rank m publishes, is at least target. For an
// asynchronous call that nobody waits for yet it leaves the core to the rank's
// own goroutines, which have something better to do with it.
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
	told, wait := false, 0
	for i := 0; word.Load() < target; i++ {
		if err := r.trouble(ctx, call, done, m, word, target); err != nil {
			return err
		}
		if i < yields {
			own := !call.Attended()
			if own || i%8 == 7 {
				goruntime.Gosched() // to this rank's own goroutines
			}
			if !own {
				r.yield()
			}
			continue
		}
		if !r.sleep(m, word, target) {
			continue
		}
		if told {
			r.job.seg.AttendWait(r.job.rank, wait, call.Attended())
			continue
		}
		told, wait = true, r.tell(call, m, time.Now().Add(-nap))
		defer r.job.seg.EndWait(r.job.rank, wait)
	}
	return nil
}

// sleep returns when rank m has rung or after a nap; late says that it was a nap.
func (r *Rank) sleep(m int, word *atomic.Uint64, target uint64) (late bool) {
	peer := r.region.members[m]
	peer.sleepers.Add(1)
	defer peer.sleepers.Add(^uint32(0))
	bell := peer.bell.Load()
	if word.Load() >= target {
		return false
	}
	timeout := unix.NsecToTimespec(int64(nap))
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&peer.bell)), futexWait, uintptr(bell),
		uintptr(unsafe.Pointer(&timeout)), 0, 0)
	return errno == unix.ETIMEDOUT
}

// tell leaves word of a long wait where the launcher looks, and returns the wait's
// number.
func (r *Rank) tell(call *comm.Call, m int, since time.Time) int {
	f := call.Fingerprint()
	return r.job.seg.BeginWait(r.job.rank, control.Wait{
		Call:  control.Call{Comm: r.region.id, Seq: r.calls, What: f.What, Count: f.Count},
		Since: since, On: r.world[m], Text: call.String(), Site: call.Site(), Attended: call.Attended(),
	})
}

// trouble returns why waiting for rank m is in vain, nil if it may not be.
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
			err := comm.Late(context.Cause(ctx), r.worlds(r.late(m, word, target)))
			r.Abort(err)
			r.leave()
			return err
		default:
		}
	}
	return nil
}

// ended ends the communicator if a rank that this one waits for, here or next,
// has ended.
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
			r.abort(verdict{kind: ranksEnd, a: r.world[l], text: cause})
			return r.sentence(call)
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
