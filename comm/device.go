package comm

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/mem"
)

// A Stage brings what lies in the memory of a device, which this process cannot
// touch, to memory that a Backend can, and back. It may be used from any goroutine.
type Stage interface {
	// Holds reports whether p is an address of the device.
	Holds(p unsafe.Pointer) bool
	// Pin prepares host memory for fast copies, if it can; Unpin ends that.
	Pin(p unsafe.Pointer, bytes int)
	Unpin(p unsafe.Pointer, bytes int)
	// Alloc hands out memory of the device.
	mem.Allocator
	// Open begins copies that see all that the device was given to do before.
	Open(lanes int) (Copies, error)
	// Enter makes the device that of the calling thread, which stays the goroutine's
	// until leave is called: for libraries that are handed its addresses.
	Enter() (leave func())
}

// Copies are those of one call. What one lane does takes effect in order.
type Copies interface {
	// ToHost, FromHost and Within, from the device to itself, queue a copy on a lane:
	// Go's memory must be kept alive until it has been made.
	ToHost(lane int, dst, src unsafe.Pointer, bytes int) error
	FromHost(lane int, dst, src unsafe.Pointer, bytes int) error
	Within(lane int, dst, src unsafe.Pointer, bytes int) error
	// Fold queues what Call.Fold does, of the elements of dst, to which those at src
	// are folded, in memory of the device too: of each rank as many, one rank's after
	// the other's.
	Fold(lane int, op Op, dst Buffer, src unsafe.Pointer, ranks int) error
	// Wait returns when a lane has done all.
	Wait(lane int) error
	// Close waits for all lanes.
	Close() error
}

// maxLanes is how many parts of a staged call are under way at once: one comes from
// the device while the ranks exchange another and a third goes back.
const maxLanes = 3

// partBytes is the size of the parts in which large calls are staged.
const partBytes = 4 << 20

// UseStage has the buffers of calls that s holds staged, on c and on all
// communicators of its world. Calls on device memory complete as others do: when Do
// returns, or the Pending has ended, the result is in device memory. A call sees
// what the device was given to do before it.
func (c *Comm) UseStage(s Stage) {
	c.shared.staging.Store(&staging{stage: s, pool: mem.NewPool(pinned{c.memory, s}, nil)})
}

// staging is a stage with the host memory it copies through.
type staging struct {
	stage  Stage
	pool   *mem.Pool
	mu     sync.Mutex  // of the pool: several communicators may have calls under way
	direct atomic.Bool // device addresses go to the backend, see TryDirect

	windows atomic.Pointer[windows] // memory of devices that all ranks read, see TryPeers; nil: none
	folds   atomic.Pointer[folds]   // where devices fold reductions, see TryFold; nil: nowhere
}

// pinned hands out memory that backends read in place, pinned for the device.
type pinned struct {
	mem.Allocator
	stage Stage
}

func (p pinned) Alloc(bytes int) (unsafe.Pointer, error) {
	ptr, err := p.Allocator.Alloc(bytes)
	if err == nil {
		p.stage.Pin(ptr, bytes)
	}
	return ptr, err
}

func (p pinned) Free(ptr unsafe.Pointer, bytes int) {
	p.stage.Unpin(ptr, bytes)
	p.Allocator.Free(ptr, bytes)
}

// carry hands a call to the backend; if its buffers lie in device memory by way of the
// host, or to a backend that takes their addresses.
func (c *Comm) carry(ctx context.Context, call *Call) error {
	s := c.shared.staging.Load()
	if s == nil {
		return c.backend.Do(ctx, call)
	}
	done, err := s.among(ctx, c, call)
	if err != nil {
		c.backend.Abort(err) // the ranks must not wait for this one
	}
	if done || err != nil {
		return err
	}
	if !(call.Dst.Count > 0 && s.stage.Holds(call.Dst.Ptr)) && !(call.Src.Count > 0 && s.stage.Holds(call.Src.Ptr)) {
		return c.backend.Do(ctx, call)
	}
	run := s.run
	if s.direct.Load() && call.Kind.moves() {
		run = s.hand
	}
	if err := run(ctx, c, call); err != nil {
		// The ranks must not wait for this one, whose part was not done.
		c.backend.Abort(err)
		return err
	}
	return nil
}

// copies calls f with copies of one lane.
func (s *staging) copies(f func(Copies) error) error {
	c, err := s.stage.Open(1)
	if err != nil {
		return err
	}
	err = f(c)
	if late := c.Close(); err == nil {
		err = late
	}
	return err
}

// among carries out a call among the devices, if the ranks find that they can.
func (s *staging) among(ctx context.Context, c *Comm, call *Call) (done bool, err error) {
	if f := s.folds.Load(); f != nil && f.takes(call) {
		return f.fold(ctx, s, c, call)
	}
	if w := s.windows.Load(); w != nil && call.Kind.moves() && !call.Kind.PointToPoint() {
		return w.read(ctx, s, c, call)
	}
	return false, nil
}

// blocks returns how many parts of equal size, one a rank, the buffers of a call
// have; ok is false for calls whose parts differ or whose elements are structs.
func (c *Call) blocks(size int) (dst, src int, ok bool) {
	if c.Op == Custom && c.Kind.Reduces() {
		return 1, 1, false
	}
	switch c.Kind {
	case AllReduceKind, ReduceKind, BroadcastKind, SendKind, RecvKind:
		return 1, 1, true
	case AllGatherKind, GatherKind:
		return size, 1, true
	case ScatterKind, ReduceScatterKind:
		return 1, size, true
	case AllToAllKind:
		return size, size, true
	}
	return 1, 1, false
}

// A side is one buffer of a staged call: blocks of n elements, of which a part has
// the elements [lo, hi) of each.
type side struct {
	buf    Buffer
	blocks int
	n      int
	device bool
}

func (s *staging) side(b Buffer, blocks int) side {
	return side{buf: b, blocks: blocks, n: b.Count / blocks, device: b.Count > 0 && s.stage.Holds(b.Ptr)}
}

// part returns the buffer of elements [lo, hi) of each block, at p on the host.
func (s *side) part(p unsafe.Pointer, lo, hi int) Buffer {
	lo, hi = min(lo, s.n), min(hi, s.n) // the sides of a call that is not cut may differ
	switch {
	case s.buf.Count == 0:
		return s.buf
	case !s.device && s.blocks == 1:
		return s.buf.Slice(lo, hi)
	}
	return Buffer{Ptr: p, Count: s.blocks * (hi - lo), DType: s.buf.DType}
}

// move copies elements [lo, hi) of each block between the buffer and p.
func (s *side) move(st Copies, lane int, p unsafe.Pointer, lo, hi int, toHost bool) error {
	if s.buf.Count == 0 || !s.device && s.blocks == 1 {
		return nil
	}
	lo, hi = min(lo, s.n), min(hi, s.n)
	elem := s.buf.DType.Size()
	bytes := (hi - lo) * elem
	for b := range s.blocks {
		near, far := unsafe.Add(p, b*bytes), unsafe.Add(s.buf.Ptr, (b*s.n+lo)*elem)
		var err error
		switch {
		case bytes == 0:
		case !s.device && toHost:
			copy(unsafe.Slice((*byte)(near), bytes), unsafe.Slice((*byte)(far), bytes))
		case !s.device:
			copy(unsafe.Slice((*byte)(far), bytes), unsafe.Slice((*byte)(near), bytes))
		case toHost:
			err = st.ToHost(lane, near, far, bytes)
		default:
			err = st.FromHost(lane, far, near, bytes)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// A lane holds the host memory of one part under way.
type lane struct {
	dst, src mem.Ref
	lo, hi   int
}

// A staged is a call under way.
type staged struct {
	call     *Call
	dst, src side
	sends    *side // what comes from the device before a part is exchanged; nil if nothing
	gets     *side // what goes back after it
	copies   Copies
	lanes    []lane
	n, size  int // elements of a block, and of a part of it
	parts    int
	inPlace  bool
}

// run carries out a call in parts of equal numbers on all ranks.
func (s *staging) run(ctx context.Context, c *Comm, call *Call) (err error) {
	nd, ns, cut := call.blocks(c.size)
	t := staged{call: call, dst: s.side(call.Dst, nd), src: s.side(call.Src, ns), parts: 1}
	t.inPlace = call.Kind == AllReduceKind && call.Dst.Ptr == call.Src.Ptr
	t.sends, t.gets = &t.src, &t.dst
	if call.Kind == BroadcastKind {
		t.sends, t.gets = nil, &t.dst
		if call.Root == c.rank {
			t.sends, t.gets = &t.dst, nil
		}
	}
	t.n = max(t.dst.n, t.src.n)
	if cut {
		t.parts = max(1, (t.n*call.DType().Size()+partBytes-1)/partBytes)
	}
	t.size = (t.n + t.parts - 1) / t.parts
	t.lanes = make([]lane, min(maxLanes, t.parts))
	for i := range t.lanes {
		for _, it := range []struct {
			side *side
			ref  *mem.Ref
		}{{&t.dst, &t.lanes[i].dst}, {&t.src, &t.lanes[i].src}} {
			if *it.ref, err = s.room(it.side, t.size); err != nil {
				return err
			}
			defer it.ref.Free()
		}
	}
	if t.copies, err = s.stage.Open(len(t.lanes)); err != nil {
		return err
	}
	defer func() {
		if late := t.copies.Close(); err == nil {
			err = late
		}
	}()
	if err := t.fetch(0); err != nil {
		return err
	}
	for k := range t.parts {
		if k+1 < t.parts { // it comes while this one is exchanged
			if err := t.fetch(k + 1); err != nil {
				return err
			}
		}
		if err := t.exchange(ctx, c, k); err != nil {
			return err
		}
	}
	return nil
}

// at returns where a side of a lane's part is on the host.
func (t *staged) at(l *lane, s *side) unsafe.Pointer {
	if s == &t.src || t.inPlace {
		return l.src.Block.Ptr()
	}
	return l.dst.Block.Ptr()
}

// fetch begins to bring part k, when its lane is free.
func (t *staged) fetch(k int) error {
	i := k % len(t.lanes)
	l := &t.lanes[i]
	if err := t.copies.Wait(i); err != nil {
		return err
	}
	l.lo, l.hi = min(k*t.size, t.n), min((k+1)*t.size, t.n)
	if t.sends == nil {
		return nil
	}
	return t.sends.move(t.copies, i, t.at(l, t.sends), l.lo, l.hi, true)
}

// exchange does part k with the other ranks and begins to bring it back.
func (t *staged) exchange(ctx context.Context, c *Comm, k int) error {
	i := k % len(t.lanes)
	l := &t.lanes[i]
	if err := t.copies.Wait(i); err != nil {
		return err
	}
	part := *t.call
	part.Dst, part.Src = t.dst.part(t.at(l, &t.dst), l.lo, l.hi), t.src.part(t.at(l, &t.src), l.lo, l.hi)
	if t.parts > 1 {
		part.whole = t.n
		part.Cause = fmt.Sprintf("%s (part %d of %d)", t.call.Cause, k+1, t.parts)
	}
	if err := c.backend.Do(ctx, &part); err != nil || t.gets == nil {
		return err
	}
	return t.gets.move(t.copies, i, t.at(l, t.gets), l.lo, l.hi, false)
}

// room returns host memory for a part of a side.
func (s *staging) room(d *side, size int) (mem.Ref, error) {
	bytes := max(1, d.blocks*size*d.buf.DType.Size())
	if d.buf.Count == 0 {
		bytes = 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.pool.Alloc(bytes)
	if err != nil {
		return mem.Ref{}, fmt.Errorf("staging %d bytes of device memory: %w", bytes, err)
	}
	return mem.Ref{Block: b, Gen: b.Gen()}, nil
}
