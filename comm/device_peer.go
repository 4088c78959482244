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

// at returns where part k of what a rank has put into a slot is.
func (w *windows) at(worldRank, slot, k int) unsafe.Pointer {
	return unsafe.Add(w.of[worldRank], (2*slot+k%2)*w.half)
}

// What a rank says of its buffers: that they are empty, that some are not in device
// memory or that it has no slot for them, that it only gets something there, or, from
// stateSlot on, in which slot others find what it hands in.
const (
	stateEmpty = iota
	stateHost
	stateGets
	stateSlot
)

// An offer is what each rank tells all others before a call that moves elements: what
// is said above, and how many elements it has for each rank and expects of each.
type offer []int64

func newOffer(size int) offer { return make(offer, 1+2*size) }

func (o offer) size() int      { return len(o) / 2 }
func (o offer) state() int     { return int(o[0]) }
func (o offer) has(q int) int  { return int(o[1+q]) }
func (o offer) want(q int) int { return int(o[1+o.size()+q]) }

// fill says what a rank does in the call, its state excepted, and returns the buffer
// that it hands in.
func (o offer) fill(c *Call, rank int) (src Buffer) {
	size := o.size()
	has, wants := o[1:1+size], o[1+size:]
	src = c.Src
	all := func(list []int64, n int) {
		for q := range list {
			list[q] = int64(n)
		}
	}
	each := func(list []int64, counts []int) {
		for q, n := range counts {
			list[q] = int64(n)
		}
	}
	root := c.Root == rank
	switch c.Kind {
	case AllGatherKind:
		all(has, src.Count)
		all(wants, src.Count)
	case AllGatherVKind:
		all(has, src.Count)
		each(wants, c.DstCounts)
	case GatherKind, GatherVKind:
		has[c.Root] = int64(src.Count)
		switch {
		case root && c.Kind == GatherKind:
			all(wants, c.Dst.Count/size)
		case root:
			each(wants, c.DstCounts)
		}
	case ScatterKind, ScatterVKind:
		wants[c.Root] = int64(c.Dst.Count)
		switch {
		case root && c.Kind == ScatterKind:
			all(has, src.Count/size)
		case root:
			each(has, c.SrcCounts)
		}
	case AllToAllKind:
		all(has, src.Count/size)
		all(wants, c.Dst.Count/size)
	case AllToAllVKind:
		each(has, c.SrcCounts)
		each(wants, c.DstCounts)
	case BroadcastKind:
		if src = c.Dst; root {
			all(has, src.Count)
			has[rank] = 0
		} else {
			src = Buffer{}
			wants[c.Root] = int64(c.Dst.Count)
		}
	}
	return src
}

// shared reports whether all ranks get the same elements of a rank in calls of kind k;
// otherwise they get what lies one after another.
func (k Kind) shared() bool {
	return k == AllGatherKind || k == AllGatherVKind || k == BroadcastKind
}

// total returns how many elements a rank puts into its slot.
func (o offer) total(shared bool) int { return o.before(o.size(), shared) }

// before returns where in them those for rank q begin.
func (o offer) before(q int, shared bool) (n int) {
	switch {
	case !shared:
		for r := range q {
			n += o.has(r)
		}
	case q == o.size():
		for r := range q {
			n = max(n, o.has(r))
		}
	}
	return n
}

// agree reports whether a call can be made by reading windows, from what all ranks
// have said, so that all come to the same. It cannot if one has not for another what
// that expects: the backend then says so.
func agree(offers []offer) bool {
	some := false
	for p, o := range offers {
		if o.state() == stateHost {
			return false
		}
		some = some || o.state() != stateEmpty
		for q := range offers {
			if o.has(q) != offers[q].want(p) {
				return false
			}
		}
	}
	return some
}

// A reading is a call whose ranks read each other's windows.
type reading struct {
	*windows
	c      *Comm
	call   *Call
	src    Buffer
	shared bool
	elem   int // bytes of an element
	offers []offer
	slot   int
	copies Copies
}

// The lanes of a reading: what is put into the window, and what is read.
const (
	putLane = iota
	readLane
	readingLanes
)

// read carries out a call by reading windows if all ranks find that they can: if done
// is false nothing has happened.
func (w *windows) read(ctx context.Context, s *staging, c *Comm, call *Call) (done bool, err error) {
	n := c.size
	r := reading{windows: w, c: c, call: call, shared: call.Kind.shared(), elem: call.DType().Size(), offers: make([]offer, n)}
	mine := newOffer(n)
	r.src = mine.fill(call, c.rank)
	switch dst, src := s.lies(call.Dst), s.lies(call.Src); {
	case dst == stateHost || src == stateHost:
		mine[0] = stateHost
	case dst == stateEmpty && src == stateEmpty:
		mine[0] = stateEmpty
	case mine.total(r.shared) == 0:
		mine[0] = stateGets
	default:
		mine[0] = stateHost
		if slot, ok := w.reserve(); ok {
			defer w.release(slot)
			mine[0], r.slot = int64(stateSlot+slot), slot
		}
	}
	if st := mine.state(); st >= stateGets {
		if r.copies, err = s.stage.Open(readingLanes); err != nil {
			return false, err
		}
		defer func() {
			if late := r.copies.Close(); err == nil {
				err = late
			}
		}()
		if err := r.put(mine, 0); err != nil {
			return false, err
		}
		if err := r.copies.Wait(putLane); err != nil {
			return false, err
		}
	}
	all := make(offer, n*len(mine))
	told := call.inner(AllGatherKind, Of(all), Of(mine))
	if err := c.backend.Do(ctx, &told); err != nil {
		return false, err
	}
	for q := range r.offers {
		r.offers[q] = all[q*len(mine):][:len(mine)]
	}
	if !agree(r.offers) {
		return false, nil
	}
	return true, r.run(ctx)
}

// lies says where a buffer is.
func (s *staging) lies(b Buffer) int {
	switch {
	case b.Count == 0:
		return stateEmpty
	case s.stage.Holds(b.Ptr):
		return stateGets
	}
	return stateHost
}

// run reads part after part, when each is in all windows. A half is written again
// when all have read what it held: they say so by coming to the next part.
func (r *reading) run(ctx context.Context) error {
	mine := r.offers[r.c.rank]
	parts := 0
	for _, o := range r.offers {
		parts = max(parts, (o.total(r.shared)*r.elem+r.half-1)/r.half)
	}
	for k := range parts {
		if k+1 < parts {
			if err := r.put(mine, k+1); err != nil {
				return err
			}
		}
		if err := r.take(k); err != nil {
			return err
		}
		if r.copies != nil {
			for lane := range readingLanes {
				if err := r.copies.Wait(lane); err != nil {
					return err
				}
			}
		}
		met := r.call.inner(BarrierKind, Buffer{}, Buffer{})
		if err := r.c.backend.Do(ctx, &met); err != nil {
			return err
		}
	}
	return nil
}

// put queues the copy of part k of what this rank hands in to its slot.
func (r *reading) put(mine offer, k int) error {
	lo, hi := k*r.half, min((k+1)*r.half, mine.total(r.shared)*r.elem)
	if lo >= hi {
		return nil
	}
	return r.copies.Within(putLane, r.at(r.c.world[r.c.rank], r.slot, k), unsafe.Add(r.src.Ptr, lo), hi-lo)
}

// take queues the copies of what part k has for this rank; what it has for itself comes
// with the first.
func (r *reading) take(k int) error {
	to := 0 // where in dst
	for q, o := range r.offers {
		from, n := o.before(r.c.rank, r.shared)*r.elem, o.has(r.c.rank)*r.elem
		at := to
		to += n
		lo, hi := max(from, k*r.half), min(from+n, (k+1)*r.half)
		var src unsafe.Pointer
		switch {
		case q == r.c.rank && k == 0 && n > 0:
			lo, hi, src = from, from+n, unsafe.Add(r.src.Ptr, from)
		case q == r.c.rank || lo >= hi:
			continue
		default:
			src = unsafe.Add(r.at(r.c.world[q], o.state()-stateSlot, k), lo-k*r.half)
		}
		if err := r.copies.Within(readLane, unsafe.Add(r.call.Dst.Ptr, at+lo-from), src, hi-lo); err != nil {
			return err
		}
	}
	return nil
}
