package mem

import (
	"context"
	goruntime "runtime"
	"time"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/backend"
)

// windowMemory is the memory of a window, by rank.
type windowMemory [][]uint64

// Address returns where rank's memory lies.
func (w windowMemory) Address(rank int) unsafe.Pointer {
	return unsafe.Pointer(unsafe.SliceData(w[rank]))
}

// Close leaves the memory to the garbage collector.
func (w windowMemory) Close() error { return nil }

// OpenWindow has each rank make its memory and put it into a list that all share.
func (r *Rank) OpenWindow(ctx context.Context, bytes []int) (backend.WindowMemory, error) {
	var all windowMemory
	if r.rank == 0 { // the list is made once for all
		all = make(windowMemory, len(bytes))
	}
	m, err := r.meet(ctx, &backend.Call{Kind: backend.SplitKind, Src: backend.Of([]int64{0})}, all)
	if err != nil {
		return nil, err
	}
	all = m.shown(0).(windowMemory)
	all[r.rank] = make([]uint64, (bytes[r.rank]+7)/8)
	r.gather(nil)
	return all, nil
}

// Touch returns the error that has ended the group, nil if none has.
func (r *Rank) Touch(backend.Kind, int) error {
	if !r.g.failed.Load() {
		return nil
	}
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	return r.g.dead()
}

// A windowNeed is the need of a call on a window.
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

// A call that waits for memory to change first yields, then sleeps between looks.
const (
	windowYields = 100
	windowNap    = 50 * time.Microsecond
)

// Await calls on until it returns a negative rank: the memory is as the call needs it.
func (r *Rank) Await(ctx context.Context, call *backend.Call, on func() (rank int, err error)) error {
	n := &windowNeed{on, r.g.world}
	for range windowYields {
		if n.done() {
			return nil
		}
		goruntime.Gosched()
	}
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	w := &waiting{rank: r, ctx: ctx, call: call, need: n, alone: true}
	r.g.start(w)
	defer r.g.stop(w)
	last := -1
	for {
		missing := n.missing()
		if missing == nil {
			return nil
		}
		if missing[0] != last { // another rank is waited for: there is progress
			last = missing[0]
			r.g.changes++
		}
		if err := r.waitError(ctx, n); err != nil {
			return err
		}
		if r.g.describe && w.party.Call == "" {
			w.party, w.untaken = r.party(call), call.NotTaken()
		}
		r.g.mu.Unlock()
		time.Sleep(windowNap)
		r.g.mu.Lock()
	}
}

// Broken returns the error that has ended the group, nil if none has.
func (r *Rank) Broken() error { return r.Touch(backend.Invalid, 0) }

// Moved has nothing to note: a message comes in one piece.
func (r *Rank) Moved() {}

// Export returns the address of memory as its name.
func (r *Rank) Export(p unsafe.Pointer, _ int) (at uint64, ok bool) { return uint64(uintptr(p)), true }

// Import returns the memory at an address.
func (r *Rank) Import(_ int, at uint64, _ int) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&at))
}

// Ended reports whether a rank has ended.
func (r *Rank) Ended(rank int) (cause string, ended bool) {
	if p := r.g.over[r.g.world[rank]].Load(); p != nil {
		return *p, true
	}
	return "", false
}
