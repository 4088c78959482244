package device

import (
	"context"
	"fmt"
	"slices"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/fold"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/mem"
)

// maxLanes is how many parts of a staged call are in progress at once: while the ranks exchange
// one part, the next comes from the device and the one before goes back to it.
const maxLanes = 3

// partBytes is the size of the parts in which large calls are staged.
const partBytes = 4 << 20

// blocks returns the lengths of the blocks of Dst and of Src: one for each rank, or one for the
// whole buffer. ok is false if the call cannot be divided into pieces: either the ranks do not
// know each other's lengths, or the call has a Func, whose elements have another size.
func blocks(c *backend.Call, size int) (dst, src []int, ok bool) {
	dst, src = []int{c.Dst.Count}, []int{c.Src.Count}
	if c.Op == fold.Custom && c.Kind.Reduces() {
		return dst, src, false
	}
	s := c.Kind.Shape()
	if s.Pattern == backend.NoPattern || s.Pattern == backend.PatternBarrier || s.Pairwise() {
		return dst, src, false
	}
	return blocksOf(s.Dst, c.Dst, c.DstCounts, size), blocksOf(s.Src, c.Src, c.SrcCounts, size), true
}

// blocksOf returns the lengths of the blocks of one buffer.
func blocksOf(l backend.Layout, b backend.Buffer, counts []int, size int) []int {
	switch l {
	case backend.Parts:
		return slices.Repeat([]int{b.Count / size}, size)
	case backend.Counted:
		return counts
	}
	return []int{b.Count}
}

// A side is one buffer of a staged call. A part has elements [lo, hi) of each block.
type side struct {
	buf    backend.Buffer
	blocks []int // elements of each block
	device bool  // buf is in device memory
	room   bool  // its parts are in host memory of the staging
}

func (s *staging) side(b backend.Buffer, blocks []int, parts int) side {
	d := side{buf: b, blocks: blocks, device: b.Count > 0 && s.stage.Holds(b.Ptr)}
	d.room = d.device || b.Count > 0 && len(blocks) > 1 && parts > 1
	return d
}

// clip returns the part of [lo, hi) that lies in a block of n elements.
func clip(n, lo, hi int) span {
	lo = min(lo, n)
	return span{lo, min(hi, n) - lo}
}

// clips returns, by block, the number of elements of [lo, hi) that lie in it.
func clips(blocks []int, lo, hi int) []int {
	counts := make([]int, len(blocks))
	for b, n := range blocks {
		counts[b] = clip(n, lo, hi).n
	}
	return counts
}

// part returns the buffer of elements [lo, hi) of each block: at p, or in place.
func (s *side) part(p unsafe.Pointer, lo, hi int) backend.Buffer {
	switch {
	case s.room:
		return backend.Buffer{Ptr: p, Count: ints.Sum(clips(s.blocks, lo, hi)), DType: s.buf.DType}
	case len(s.blocks) == 1:
		c := clip(s.blocks[0], lo, hi)
		return s.buf.Slice(c.at, c.at+c.n)
	}
	return s.buf
}

// move queues the copies of elements [lo, hi) of each block between the buffer and p.
func (s *side) move(copies Copies, lane int, p unsafe.Pointer, lo, hi int, toHost bool) error {
	if !s.room {
		return nil
	}
	first, run := 0, span{} // elements that are contiguous are one copy
	elem := s.buf.DType.Size()
	for _, n := range s.blocks {
		c := clip(n, lo, hi)
		if c.at += first; c.n > 0 && c.at != run.at+run.n {
			if err := s.copy(copies, lane, p, run, toHost); err != nil {
				return err
			}
			p, run = unsafe.Add(p, run.n*elem), span{at: c.at}
		}
		run.n += c.n
		first += n
	}
	return s.copy(copies, lane, p, run, toHost)
}

// copy copies a span of the buffer from or to p.
func (s *side) copy(copies Copies, lane int, p unsafe.Pointer, c span, toHost bool) error {
	far := s.buf.Slice(c.at, c.at+c.n)
	switch bytes := far.Bytes(); {
	case bytes == 0:
		return nil
	case s.device && toHost:
		return copies.ToHost(lane, p, far.Ptr, bytes)
	case s.device:
		return copies.FromHost(lane, far.Ptr, p, bytes)
	case toHost:
		copy(unsafe.Slice((*byte)(p), bytes), far.Data())
	default:
		copy(far.Data(), unsafe.Slice((*byte)(p), bytes))
	}
	return nil
}

// A lane holds the host memory of one part in progress.
type lane struct {
	dst, src mem.Ref
	lo, hi   int
}

// A staged is a call in progress.
type staged struct {
	call     *backend.Call
	dst, src side
	sends    *side // is copied from the device before a part is exchanged; nil: none
	gets     *side // is copied to the device after a part is exchanged; nil: none
	copies   Copies
	lanes    []lane
	n, size  int // elements of the longest block, and of a part of it
	parts    int
	inPlace  bool
}

// run carries out a call in parts. All ranks have the same number of parts.
func (s *staging) run(ctx context.Context, c *group, call *backend.Call) (err error) {
	dst, src, divisible := blocks(call, c.size)
	t := staged{call: call, n: max(slices.Max(dst), slices.Max(src)), parts: 1}
	if divisible {
		t.parts = max(1, ints.DivUp(t.n*call.DType().Size(), partBytes))
	}
	t.size = ints.DivUp(t.n, t.parts)
	t.dst, t.src = s.side(call.Dst, dst, t.parts), s.side(call.Src, src, t.parts)
	t.inPlace = call.Kind.Shape().InPlace && call.Dst.Ptr == call.Src.Ptr
	t.sends, t.gets = &t.src, &t.dst
	if call.Kind.Shape().Root == backend.RootShares {
		t.sends, t.gets = nil, &t.dst
		if call.Root == c.rank {
			t.sends, t.gets = &t.dst, nil
		}
	}
	if !call.Fills(c.rank, c.size) {
		t.gets = nil
	}
	t.lanes = make([]lane, min(maxLanes, t.parts))
	for i := range t.lanes {
		l := &t.lanes[i]
		if t.src.room {
			if l.src, err = s.room(&t.src, t.size); err != nil {
				return err
			}
			defer l.src.Free()
		}
		if t.dst.room && !t.inPlace {
			if l.dst, err = s.room(&t.dst, t.size); err != nil {
				return err
			}
			defer l.dst.Free()
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

// at returns the host memory that holds a side of the lane's part, nil if the part is in place.
func (t *staged) at(l *lane, s *side) unsafe.Pointer {
	ref := l.dst
	if s == &t.src || t.inPlace {
		ref = l.src
	}
	if !s.room {
		return nil
	}
	return ref.Block.Ptr()
}

// fetch waits until the lane of part k is free, and begins to copy the part from the device.
func (t *staged) fetch(k int) error {
	i := k % len(t.lanes)
	l := &t.lanes[i]
	if k >= len(t.lanes) {
		if err := t.copies.Wait(i); err != nil {
			return err
		}
	}
	l.lo, l.hi = min(k*t.size, t.n), min((k+1)*t.size, t.n)
	if t.sends == nil {
		return nil
	}
	return t.sends.move(t.copies, i, t.at(l, t.sends), l.lo, l.hi, true)
}

// exchange carries out part k with the other ranks, and begins to copy its result back.
func (t *staged) exchange(ctx context.Context, c *group, k int) error {
	i := k % len(t.lanes)
	l := &t.lanes[i]
	if t.sends != nil && t.sends.device {
		if err := t.copies.Wait(i); err != nil {
			return err
		}
	}
	part := *t.call
	if t.parts > 1 {
		part = t.call.Piece(t.n)
	}
	part.Dst, part.Src = t.dst.part(t.at(l, &t.dst), l.lo, l.hi), t.src.part(t.at(l, &t.src), l.lo, l.hi)
	if t.parts > 1 {
		part.Cause = fmt.Sprintf("%s (part %d of %d)", t.call.Cause, k+1, t.parts)
		if part.DstCounts != nil {
			part.DstCounts = clips(part.DstCounts, l.lo, l.hi)
		}
		if part.SrcCounts != nil {
			part.SrcCounts = clips(part.SrcCounts, l.lo, l.hi)
		}
	}
	if err := c.Backend.Do(ctx, &part); err != nil || t.gets == nil {
		return err
	}
	return t.gets.move(t.copies, i, t.at(l, t.gets), l.lo, l.hi, false)
}

// room returns host memory for a part of a side.
func (s *staging) room(d *side, size int) (mem.Ref, error) {
	bytes := ints.Sum(clips(d.blocks, 0, size)) * d.buf.DType.Size()
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.pool.Alloc(bytes)
	if err != nil {
		return mem.Ref{}, fmt.Errorf("staging %d bytes of device memory: %w", bytes, err)
	}
	return mem.Ref{Block: b, Gen: b.Gen()}, nil
}
