package comm

import (
	"context"
	"slices"
	"sync"
	"unsafe"
)

// HandleBytes is the size of what names shared memory of a device.
const HandleBytes = 64

// A PeerStage is a Stage of a device whose memory other processes of the host can map.
type PeerStage interface {
	Stage
	// Share returns memory of the device, and a handle by which others map it. It stays
	// until Unshare, which must come after all have called Unmap.
	Share(bytes int) (p unsafe.Pointer, handle [HandleBytes]byte, err error)
	Unshare(p unsafe.Pointer, bytes int)
	// Map returns where this process sees what another shares: Copies may read there.
	// Unmap ends that.
	Map(handle [HandleBytes]byte) (unsafe.Pointer, error)
	Unmap(p unsafe.Pointer)
}

// slots are what calls of different communicators may use at once, a slot each.
type slots struct {
	mu    sync.Mutex
	taken [slotCount]bool
}

const slotCount = 2

// reserve returns a slot; ok is false if all are in use.
func (s *slots) reserve() (slot int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot = slices.Index(s.taken[:], false)
	if slot < 0 {
		return 0, false
	}
	s.taken[slot] = true
	return slot, true
}

func (s *slots) release(slot int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken[slot] = false
}

// windows are memory of each rank's device that all ranks of the world can read. A
// rank puts there what others are to get, a part at a time: each slot has two halves,
// so that one part is put there while the one before is read.
type windows struct {
	of   []unsafe.Pointer // by world rank: where this process sees the window
	half int              // bytes

	slots
}

// A visit is a call whose ranks read each other's windows.
type visit struct {
	*windows
	c      *Comm
	call   *Call
	elem   int   // bytes of an element
	slot   []int // by rank of c: in which slot it puts what others get
	copies Copies
	busy   [visitLanes]bool
}

// The lanes of a visit: what is put into the window, and what is read.
const (
	putLane = iota
	readLane
	visitLanes
)

// A cut is the elements [at, at+n) of a buffer.
type cut struct{ at, n int }

// open makes the visit's copies, which close closes.
func (v *visit) open(s *staging) (err error) {
	v.copies, err = s.stage.Open(visitLanes)
	return err
}

func (v *visit) close(err *error) {
	if v.copies != nil {
		if late := v.copies.Close(); *err == nil {
			*err = late
		}
	}
}

// at returns where a half of rank q's slot is.
func (v *visit) at(q, half int) unsafe.Pointer {
	return unsafe.Add(v.of[v.c.world[q]], (2*v.slot[q]+half)*v.half)
}

// A spot is element i of those at p.
type spot struct {
	p unsafe.Pointer
	i int
}

// copy queues a copy of n elements.
func (v *visit) copy(lane int, dst, src spot, n int) error {
	if n == 0 {
		return nil
	}
	v.busy[lane] = true
	return v.copies.Within(lane, unsafe.Add(dst.p, dst.i*v.elem), unsafe.Add(src.p, src.i*v.elem), n*v.elem)
}

// put queues the copies of what the others get in a part, a cut of src each, into a half
// of this rank's slot: one after another.
func (v *visit) put(half int, src unsafe.Pointer, cuts []cut) error {
	to, run := spot{v.at(v.c.rank, half), 0}, cut{} // what lies together is one copy
	for q, c := range cuts {
		switch {
		case q == v.c.rank || c.n == 0:
			continue
		case c.at != run.at+run.n:
			if err := v.copy(putLane, to, spot{src, run.at}, run.n); err != nil {
				return err
			}
			to.i += run.n
			run = cut{at: c.at}
		}
		run.n += c.n
	}
	return v.copy(putLane, to, spot{src, run.at}, run.n)
}

// find returns where in a half of rank q's slot this rank's elements are, of what was put
// there by these cuts.
func (v *visit) find(q, half int, cuts []cut) spot {
	before := 0
	for r, c := range cuts[:v.c.rank] {
		if r != q {
			before += c.n
		}
	}
	return spot{v.at(q, half), before}
}

// wait returns when what was queued has been done.
func (v *visit) wait() error {
	for lane, busy := range v.busy {
		if !busy {
			continue
		}
		if err := v.copies.Wait(lane); err != nil {
			return err
		}
		v.busy[lane] = false
	}
	return nil
}

// meet returns when what any rank has queued has been done.
func (v *visit) meet(ctx context.Context) error {
	if err := v.wait(); err != nil {
		return err
	}
	met := v.call.inner(BarrierKind, Buffer{}, Buffer{})
	return v.c.backend.Do(ctx, &met)
}
