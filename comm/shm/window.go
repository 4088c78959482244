package shm

import (
	"context"
	"fmt"
	goruntime "runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/internal/dtype"
)

// windowMemory is the memory of a window, in the ranks' arenas.
type windowMemory struct {
	job   *job
	addrs []unsafe.Pointer // by rank
	mine  unsafe.Pointer
	bytes int // of mine
}

// Address returns where this process has mapped rank's memory.
func (w *windowMemory) Address(rank int) unsafe.Pointer { return w.addrs[rank] }

// Close gives this rank's memory back to its arena.
func (w *windowMemory) Close() error {
	w.job.seg.WhileOpen(func() { w.job.arena.Free(w.mine, w.bytes) })
	return nil
}

// OpenWindow makes each rank allocate memory in its arena and tell the others where it lies.
func (r *Rank) OpenWindow(ctx context.Context, bytes []int) (backend.WindowMemory, error) {
	w := &windowMemory{job: r.job, bytes: bytes[r.me]}
	var err error
	if w.mine, err = r.job.arena.Alloc(w.bytes); err != nil {
		return nil, r.quit(err)
	}
	clear(unsafe.Slice((*byte)(w.mine), w.bytes))
	at, _ := r.job.arena.offset(w.mine, w.bytes)
	all := make([]int64, len(r.world))
	call := backend.Call{Kind: backend.SplitKind, Src: backend.Of([]int64{int64(at)}), Dst: backend.Of(all)}
	if err := r.Do(ctx, &call); err != nil {
		return nil, err
	}
	for m, at := range all {
		p := r.inArena(m, uint64(at), 0, bytes[m])
		if p == nil {
			return nil, r.damaged(&call, m, fmt.Sprintf("where its window of %d bytes lies", bytes[m]))
		}
		w.addrs = append(w.addrs, p)
	}
	return w, nil
}

// Touch notes the call in the flight recorder, and returns the error that has ended the
// communicator, nil if none has.
func (r *Rank) Touch(kind backend.Kind, bytes int) error {
	r.job.seg.Log(r.job.rank, control.Call{Comm: r.region.id, What: uint64(kind) | uint64(dtype.Uint8)<<16, Count: uint64(bytes)}, bytes)
	return r.Broken()
}

// Moved notes that something of a message has come.
func (r *Rank) Moved() { r.job.seg.Move(r.job.rank) }

// Broken returns the error that has ended the communicator, nil if none has.
func (r *Rank) Broken() error {
	if g := r.broken(); g != nil {
		return g.why(nil)
	}
	return nil
}

// broken returns the end of the communicator that has ended, this one or one that it was
// split from; nil if none has.
func (r *Rank) broken() *Rank {
	for g := r; g != nil; g = g.parent {
		if g.region.head.set.Load() != 0 {
			return g
		}
	}
	return nil
}

// windowNap is how long a rank sleeps between looks at memory that is to change. If the launcher asks whether
// it can do more than wait, it sleeps for a nap, as in a collective: on a busy machine who looks often is
// always about to run, and the launcher could not tell its wait from one that is about to end.
const windowNap = 50 * time.Microsecond

// aloneBit marks a wait in a call on a window. Such calls have no place in the order of the
// communicator's collectives, so each wait has a number of its own in place of a communicator's.
const aloneBit = 1 << 63

// Await calls on until it returns a negative rank: the memory is as the call needs it. A rank with a
// core of its own first spins, because the change is most often about to come.
func (r *Rank) Await(ctx context.Context, call *backend.Call, on func() (rank int, err error)) error {
	asked, moves, last := false, uint64(0), -1 // whether the launcher has asked, and what had moved then
	var shown shownWait
	defer shown.end(r.job)
	for range r.job.spins {
		if rank, err := on(); rank < 0 || err != nil {
			return err
		}
	}
	var never atomic.Uint32
	for i := 0; ; i++ {
		rank, err := on()
		if rank < 0 || err != nil {
			return err
		}
		if g := r.broken(); g != nil {
			return g.why(nil)
		}
		if cause, ended := r.job.seg.HasEnded(r.world[rank]); ended {
			if again, err := on(); err == nil && again == rank { // it did not change the memory before it ended
				r.abort(failure{kind: ranksEnd, a: r.world[rank], text: cause})
				return r.why(nil)
			}
			continue
		}
		if cause := backend.Cancelled(ctx); cause != nil {
			r.Abort(cause)
			return fmt.Errorf("%w while waiting for rank %d; look there for what is slow or stuck", cause, r.world[rank])
		}
		if i < yields {
			if i%8 == 7 {
				goruntime.Gosched() // to this rank's own goroutines
			}
			osYield()
			continue
		}
		pause := windowNap
		if asked = asked && rank == last && r.job.seg.Moves(r.job.rank) == moves; asked {
			pause = nap
		}
		sleepWhile(&never, 0, pause)
		if r.job.answer() {
			asked, moves = true, r.job.seg.Moves(r.job.rank)
		}
		last = rank
		shown.update(r, call, rank)
	}
}

// A shownWait is a wait of Await as the launcher sees it.
type shownWait struct {
	begun   bool
	number  int
	on      int
	since   time.Time
	moves   uint64 // what had moved when this was last looked at
	untaken string // messages that the call does not take
}

// update shows that call waits for rank on.
func (w *shownWait) update(r *Rank, call *backend.Call, on int) {
	seg := r.job.seg
	moves := seg.Moves(r.job.rank)
	same := w.begun && w.on == on
	if same && w.moves == moves {
		return
	}
	untaken := call.NotTaken()
	if w.moves = moves; same && w.untaken == untaken {
		return
	}
	w.end(r.job)
	if !same {
		w.on, w.since = on, time.Now()
	}
	w.untaken = untaken
	of := r.world[on]
	if call.OfAny() {
		of = control.Anyone
	}
	w.number = seg.BeginWait(r.job.rank, control.Wait{
		Call:  control.Call{Comm: aloneBit | uint64(r.job.rank)<<32 | r.job.alone.Add(1), What: uint64(call.Kind)},
		Since: w.since, On: of, Text: call.String(), Site: call.Site(), Group: r.name(), Untaken: untaken, Attended: true,
	})
	w.begun = true
}

func (w *shownWait) end(j *job) {
	if w.begun {
		j.seg.EndWait(j.rank, w.number)
		w.begun = false
	}
}

// Export returns the offset of memory in this rank's arena; ok is false if it lies outside.
func (r *Rank) Export(p unsafe.Pointer, bytes int) (at uint64, ok bool) {
	i, ok := r.job.arena.offset(p, bytes)
	return uint64(i), ok
}

// Import returns the memory that a rank has exported, nil if it is not within that rank's arena.
func (r *Rank) Import(rank int, at uint64, bytes int) unsafe.Pointer {
	return r.inArena(rank, at, 0, bytes)
}

// Ended reports whether a rank has ended.
func (r *Rank) Ended(rank int) (cause string, ended bool) { return r.job.seg.HasEnded(r.world[rank]) }
