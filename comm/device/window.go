package device

import (
	"context"
	"slices"
	"sync"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/backend"
)

// HandleBytes is the size of a handle to shared memory of a device.
const HandleBytes = 64

// A PeerStage is a Stage of a device whose memory other processes of the host can map.
type PeerStage interface {
	Stage
	// Share returns memory of the device, and a handle by which others map it. The memory stays
	// until Unshare, which must come after all others have called Unmap.
	Share(bytes int) (p unsafe.Pointer, handle [HandleBytes]byte, err error)
	Unshare(p unsafe.Pointer, bytes int)
	// Map maps memory that another process shares. Copies may read it until Unmap.
	Map(handle [HandleBytes]byte) (unsafe.Pointer, error)
	Unmap(p unsafe.Pointer)
}

// slots divide device memory among calls of different communicators that run at once: each
// call uses one slot.
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

// windows are memory of each rank's device that all ranks of the world can read. A rank
// copies its data into its own window, a part at a time. Each slot has two halves, so
// that the rank copies one part while the others read the part before.
type windows struct {
	of   []unsafe.Pointer // by world rank: the address of its window in this process
	half int              // bytes of half a slot

	slots
}

// A windowCall is a call that ranks carry out by reading each other's windows.
type windowCall struct {
	*windows
	c      *group
	call   *backend.Call
	elem   int   // bytes of an element
	slot   []int // by rank of c: the slot of its window that the call uses
	copies Copies
	busy   [windowLanes]bool
}

// The lanes of a windowCall: copies into this rank's window, and copies from the others'.
const (
	putLane = iota
	readLane
	windowLanes
)

// A span is the elements [at, at+n) of a buffer.
type span struct{ at, n int }

// open makes v.copies; close closes them.
func (v *windowCall) open(s *staging) (err error) {
	v.copies, err = s.stage.Open(windowLanes)
	return err
}

func (v *windowCall) close(err *error) {
	if v.copies != nil {
		if late := v.copies.Close(); *err == nil {
			*err = late
		}
	}
}

// at returns the address of a half of rank q's slot.
func (v *windowCall) at(q, half int) unsafe.Pointer {
	return unsafe.Add(v.of[v.c.world[q]], (2*v.slot[q]+half)*v.half)
}

// A position is element i of the memory at p.
type position struct {
	p unsafe.Pointer
	i int
}

// copy queues a copy of n elements.
func (v *windowCall) copy(lane int, dst, src position, n int) error {
	if n == 0 {
		return nil
	}
	v.busy[lane] = true
	return v.copies.Within(lane, unsafe.Add(dst.p, dst.i*v.elem), unsafe.Add(src.p, src.i*v.elem), n*v.elem)
}

// put queues the copies of one part into a half of this rank's slot: spans[q] of src is for
// rank q. The spans are stored one after another.
func (v *windowCall) put(half int, src unsafe.Pointer, spans []span) error {
	to, run := position{v.at(v.c.rank, half), 0}, span{} // spans that touch are one copy
	for q, c := range spans {
		switch {
		case q == v.c.rank || c.n == 0:
			continue
		case c.at != run.at+run.n:
			if err := v.copy(putLane, to, position{src, run.at}, run.n); err != nil {
				return err
			}
			to.i += run.n
			run = span{at: c.at}
		}
		run.n += c.n
	}
	return v.copy(putLane, to, position{src, run.at}, run.n)
}

// find returns the position of this rank's elements in a half of rank q's slot. spans are those
// that rank q has given to put.
func (v *windowCall) find(q, half int, spans []span) position {
	before := 0
	for r, c := range spans[:v.c.rank] {
		if r != q {
			before += c.n
		}
	}
	return position{v.at(q, half), before}
}

// wait returns when the queued copies have been made.
func (v *windowCall) wait() error {
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

// meet returns when the queued copies of all ranks have been made.
func (v *windowCall) meet(ctx context.Context) error {
	if err := v.wait(); err != nil {
		return err
	}
	barrier := v.call.Inner(backend.BarrierKind, backend.Buffer{}, backend.Buffer{})
	return v.c.Backend.Do(ctx, &barrier)
}
