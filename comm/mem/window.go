package mem

import (
	"context"
	goruntime "runtime"
	"time"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
)

// windowMemory is the memory of a window, of each rank.
type windowMemory [][]uint64

// Address returns where rank's memory lies.
func (w windowMemory) Address(rank int) unsafe.Pointer {
	return unsafe.Pointer(unsafe.SliceData(w[rank]))
}

// Close leaves the memory to the garbage collector.
func (w windowMemory) Close() error { return nil }

// OpenWindow has each rank make its memory and show it to the others.
func (r *Rank) OpenWindow(ctx context.Context, bytes []int) (comm.WindowMemory, error) {
	mine := make([]uint64, (bytes[r.rank]+7)/8)
	all, err := r.meet(ctx, &comm.Call{Kind: comm.SplitKind, Src: comm.Of([]int64{0})}, mine)
	if err != nil {
		return nil, err
	}
	w := make(windowMemory, len(all))
	for i, v := range all {
		w[i] = v.([]uint64)
	}
	return w, nil
}

// Touch returns what has ended the group.
func (r *Rank) Touch(comm.Kind, int) error {
	if !r.g.failed.Load() {
		return nil
	}
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	return r.g.dead()
}

// A windowNeed is what a call on a window waits for: the need of a waiting.
type windowNeed struct {
	on    func() (rank int, err error)
	world []int
}

func (n *windowNeed) done() bool { return n.missing() == nil }

func (n *windowNeed) missing() []int {
	rank, err := n.on()
	if rank < 0 || err != nil {
		return nil
	}
	return []int{n.world[rank]}
}

// The pauses of a call that waits for memory to change: first it yields, then it sleeps.
const (
	windowYields = 100
	windowNap    = 50 * time.Microsecond
)

// Await looks at memory until it is as it should be.
func (r *Rank) Await(ctx context.Context, call *comm.Call, on func() (rank int, err error)) error {
	it := &windowNeed{on, r.g.world}
	for range windowYields {
		if it.done() {
			return nil
		}
		goruntime.Gosched()
	}
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	w := &waiting{rank: r, ctx: ctx, call: call, need: it, alone: true}
	r.g.start(w)
	defer r.g.stop(w)
	last := -1
	for {
		missing := it.missing()
		if missing == nil {
			return nil
		}
		if missing[0] != last { // it does move
			last = missing[0]
			r.g.changes++
		}
		if err := r.hopeless(ctx, it); err != nil {
			return err
		}
		if r.g.describe && w.party.Call == "" {
			w.party = r.party(call)
		}
		r.g.mu.Unlock()
		time.Sleep(windowNap)
		r.g.mu.Lock()
	}
}
