package shm

import (
	"context"
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
)

// plan is how a call that needs the ranks' memory runs: the same on all ranks.
type plan struct {
	unit   int  // bytes of an element, of a Func one of its own
	parts  int  // pieces of a source, one a rank, or 1
	half   int  // bytes of one half of a staging block
	window int  // elements of each part that a round covers
	rounds int  // how many
	copied bool // some rank stages
	shared bool // all store into each other's memory
	pushed bool // the root of a Broadcast stores into that of others
}

// parted reports whether a source has a part for each rank.
func parted(k comm.Kind) bool {
	switch k {
	case comm.AllToAllKind, comm.AllToAllVKind, comm.ScatterKind, comm.ScatterVKind, comm.ReduceScatterKind, comm.ReduceScatterVKind:
		return true
	}
	return false
}

// planFor is the plan but for what only the slots tell.
func planFor(call *comm.Call, ranks int) plan {
	p := plan{unit: call.DType().Size(), parts: 1, rounds: 1, window: math.MaxInt}
	if call.Kind.Reduces() {
		p.unit = call.Unit()
	}
	if parted(call.Kind) {
		p.parts = ranks
	}
	p.half = (max(stageBytes, p.parts*p.unit) + line - 1) &^ (line - 1)
	p.shared = call.Kind == comm.AllReduceKind || call.Kind == comm.ReduceKind
	return p
}

// stage makes this rank's staging block large enough for call.
func (r *Rank) stage(call *comm.Call) error {
	half := planFor(call, len(r.world)).half
	if r.stagingBytes >= half {
		return nil
	}
	if r.staging != nil {
		r.freeStaging()
	}
	p, err := r.job.stagingBlock(3 * half)
	if err != nil {
		return err
	}
	r.staging, r.stagingBytes = p, half
	r.job.hold(3 * half)
	return nil
}

// rounds ends a call some of whose data is in the ranks' arenas or outside.
func (r *Rank) rounds(ctx context.Context, call *comm.Call, seq uint64) error {
	p := planFor(call, len(r.world))
	longest := 0
	for m := range r.world {
		if m != r.me {
			r.places[m] = *r.region.slot(m, seq).place()
		}
		if r.mode(m) == staged {
			p.copied = true
			longest = max(longest, int(r.places[m].longest)*call.DType().Size()/p.unit)
		}
	}
	if p.copied {
		p.window = p.half / (p.parts * p.unit)
		if p.window > line {
			p.window &^= line - 1
		}
		p.rounds = max(1, (longest+p.window-1)/p.window)
	}
	p.pushed = call.Kind == comm.BroadcastKind && !p.copied
	points := uint64(1)
	if p.copied && p.shared {
		points = 2 * uint64(p.rounds)
	} else if p.copied {
		points += uint64(p.rounds)
	}
	r.exit, r.foreign = r.steps+points, p.shared || p.pushed
	err := r.run(ctx, call, seq, &p)
	if err == nil {
		err = r.alarmed(call) // if a rank left early, what was read of it may be wrong
	}
	r.foreign = false
	return err
}

func (r *Rank) run(ctx context.Context, call *comm.Call, seq uint64, p *plan) error {
	own := r.mode(r.me) == staged
	for k := range p.rounds {
		w := window{lo: k * p.window, hi: math.MaxInt, half: k & 1}
		if k < p.rounds-1 {
			w.hi = w.lo + p.window
		}
		if own {
			r.copyIn(call, p, w)
		}
		if p.copied {
			if err := r.pass(ctx, call); err != nil {
				return err
			}
		}
		if err := r.alarmed(call); err != nil { // nobody stores into a rank that has left
			return err
		}
		if err := r.work(call, seq, p, w); err != nil {
			return err
		}
		if p.copied && p.shared {
			if err := r.pass(ctx, call); err != nil {
				return err
			}
			if own {
				r.copyOut(call, p, w)
			}
		}
	}
	if p.copied && p.shared {
		return nil
	}
	return r.pass(ctx, call)
}

// pass waits until all ranks have come to the same point within their calls.
func (r *Rank) pass(ctx context.Context, call *comm.Call) error {
	r.steps++
	r.mine.step.Store(r.steps)
	r.ring()
	for m, peer := range r.region.members {
		if m != r.me && peer.step.Load() < r.steps {
			if err := r.await(ctx, call, m, &peer.step, r.steps); err != nil {
				return err
			}
		}
	}
	return nil
}

// window is the range of elements of every part that a round covers, and the
// half of the staging blocks that holds it.
type window struct{ lo, hi, half int }

// clip returns the window's range within a part of n elements.
func (w window) clip(n int) (lo, hi int) { return min(w.lo, n), min(w.hi, n) }

// copyIn puts the window of each part of this rank's source into its staging block.
func (r *Rank) copyIn(call *comm.Call, p *plan, w window) {
	src := r.source(call)
	total := src.Bytes() / p.unit
	at := 0
	for q := range p.parts {
		n := total / p.parts
		if call.Kind == comm.AllToAllVKind || call.Kind == comm.ScatterVKind || call.Kind == comm.ReduceScatterVKind {
			n = call.SrcCounts[q] * call.DType().Size() / p.unit
		}
		if lo, hi := w.clip(n); lo < hi {
			stage := unsafe.Add(r.staging, w.half*p.half+q*p.window*p.unit)
			size := call.DType().Size()
			part := src.Part(call.SrcRows, at*p.unit/size, n*p.unit/size)
			comm.CopyParts(comm.Contiguous(stage), part.From(lo*p.unit), (hi-lo)*p.unit, (hi-lo)*p.unit)
		}
		at += n
	}
}

// copyOut takes this rank's result of a window, which others stored into its
// staging block, to Dst.
func (r *Rank) copyOut(call *comm.Call, p *plan, w window) {
	if !r.receives(call) {
		return
	}
	half := w.half
	if call.Kind == comm.ReduceKind {
		half = 2
	}
	if lo, hi := w.clip(call.Dst.Bytes() / p.unit); lo < hi {
		move(unsafe.Add(call.Dst.Ptr, lo*p.unit), unsafe.Add(r.staging, half*p.half), (hi-lo)*p.unit)
	}
}

// from returns where n elements of rank m's source lie, of which skip elements
// come before in the window w and the window begins at element first of the
// source, in its part number piece.
func (r *Rank) from(call *comm.Call, seq uint64, p *plan, w window, m, piece, first, skip, n int) unsafe.Pointer {
	if m == r.me {
		if r.mode(r.me) != staged || !p.shared {
			return unsafe.Add(r.source(call).Ptr, (first+skip)*p.unit)
		}
	}
	switch r.mode(m) {
	case staged:
		return r.inArena(m, r.places[m].at, w.half*p.half+(piece*p.window+skip)*p.unit, n*p.unit)
	case inArena:
		return r.inArena(m, r.places[m].at, (first+skip)*p.unit, n*p.unit)
	}
	return r.inlineAt(m, seq, (first+skip)*p.unit, n*p.unit)
}

// mode returns how rank m gives its data.
func (r *Rank) mode(m int) uint64 { return r.given[m] & 0xff }

// view returns elements [lo, hi) of a part of rank m's source: that of n elements
// which begins at element first, and is number piece. Its Ptr is nil if they cannot be there.
func (r *Rank) view(call *comm.Call, seq uint64, p *plan, w window, m, piece, first, n, lo, hi int) comm.Part {
	if m == r.me && call.SrcRows > 1 {
		return call.Src.Part(call.SrcRows, first, n).From(lo * p.unit)
	}
	if rows := int(r.places[m].rows); m != r.me && r.mode(m) == inArena && rows > 1 {
		src := comm.Buffer{Count: int(r.given[m] >> 8), DType: call.DType()}
		if src.Ptr = r.inArena(m, r.places[m].at, 0, src.Bytes()); src.Ptr == nil || first+n > src.Count || src.Count%rows != 0 || n%rows != 0 {
			return comm.Part{}
		}
		return src.Part(rows, first, n).From(lo * p.unit)
	}
	return comm.Contiguous(r.from(call, seq, p, w, m, piece, first+lo, 0, hi-lo))
}

// inArena returns the n bytes that begin skip bytes after offset at of rank
// m's arena, nil if they are not all within it.
func (r *Rank) inArena(m int, at uint64, skip, n int) unsafe.Pointer {
	size := uint64(r.job.arena.size)
	if at > size || skip < 0 || n < 0 || uint64(skip) > size-at || uint64(n) > size-at-uint64(skip) {
		return nil
	}
	return unsafe.Add(r.job.arenas[r.world[m]], int(at)+skip)
}

// work does this rank's share of a window.
func (r *Rank) work(call *comm.Call, seq uint64, p *plan, w window) error {
	switch call.Kind {
	case comm.AllReduceKind, comm.ReduceKind:
		return r.reduceShared(call, seq, p, w)
	case comm.ReduceScatterKind, comm.ReduceScatterVKind:
		return r.reducePart(call, seq, p, w)
	case comm.BroadcastKind:
		if p.pushed && call.Root == r.me {
			return r.push(call)
		}
	}
	whole := call.Dst.Bytes()
	for i := range r.world {
		m := (r.me + i) % len(r.world) // each begins elsewhere
		n, first := r.share(call, seq, m)
		if p.pushed && n > 0 && r.mode(r.me) == inArena {
			n = r.pulled(n, p.unit)
			whole = n * p.unit
		}
		lo, hi := w.clip(n)
		if lo == hi {
			continue
		}
		piece := 0
		if p.parts > 1 {
			piece = r.me
		}
		src := r.view(call, seq, p, w, m, piece, first, n, lo, hi)
		if src.Ptr == nil {
			return r.damagedBuffer(call, m)
		}
		comm.CopyParts(call.Dst.Part(call.DstRows, r.landing(call, m), n).From(lo*p.unit), src, (hi-lo)*p.unit, whole)
	}
	return nil
}

// pulled is how many of the n elements of a Broadcast a rank takes itself; the root
// stores the rest, so that all ranks copy alike.
func (r *Rank) pulled(n, unit int) int {
	bytes := n * unit / len(r.world) * (len(r.world) - 1)
	return min(n, (bytes+line-1)&^(line-1)/unit)
}

// push stores the rest of a Broadcast into the memory of the ranks that have it in
// their arenas.
func (r *Rank) push(call *comm.Call) error {
	unit, n := call.DType().Size(), call.Dst.Count
	lo := r.pulled(n, unit)
	for m := range r.world {
		if m == r.me || r.mode(m) != inArena {
			continue
		}
		dst := r.inArena(m, r.places[m].dst, 0, n*unit)
		if dst == nil {
			return r.damagedBuffer(call, m)
		}
		move(unsafe.Add(dst, lo*unit), unsafe.Add(call.Dst.Ptr, lo*unit), (n-lo)*unit)
	}
	return nil
}

// reduceShared folds this rank's share of the window for everybody.
func (r *Rank) reduceShared(call *comm.Call, seq uint64, p *plan, w window) error {
	first, last := w.clip(call.Src.Bytes() / p.unit)
	ranks := len(r.world)
	grain := max(1, line/p.unit) // ranks do not store into one cache line
	chunk := ((last-first+ranks-1)/ranks + grain - 1) / grain * grain
	lo := min(r.me*chunk, last-first)
	hi := min(lo+chunk, last-first)
	if lo == hi {
		return nil
	}
	dsts := r.dsts[:0]
	for m := range r.world {
		r.srcs[m] = r.from(call, seq, p, w, m, 0, first, lo, hi-lo)
		dst := r.srcs[m]
		if call.Kind == comm.AllReduceKind || m == call.Root {
			if dst = r.into(call, p, w, m, first, lo, hi-lo); dst != nil {
				dsts = append(dsts, dst)
			}
		}
		if r.srcs[m] == nil || dst == nil {
			return r.damagedBuffer(call, m)
		}
	}
	call.Fold(dsts, r.srcs, hi-lo)
	return nil
}

// into returns where n elements of the result, skip after the beginning of the
// window at element first, belong in rank m's memory.
func (r *Rank) into(call *comm.Call, p *plan, w window, m, first, skip, n int) unsafe.Pointer {
	if r.mode(m) == inArena {
		return r.inArena(m, r.places[m].dst, (first+skip)*p.unit, n*p.unit)
	}
	half := w.half
	if call.Kind == comm.ReduceKind {
		half = 2
	}
	return r.inArena(m, r.places[m].at, half*p.half+skip*p.unit, n*p.unit)
}

// reducePart folds the window of this rank's part into its Dst.
func (r *Rank) reducePart(call *comm.Call, seq uint64, p *plan, w window) error {
	size := call.DType().Size()
	n := call.Dst.Bytes() / p.unit
	first := r.me * n
	if call.Kind == comm.ReduceScatterVKind {
		first = sum(call.SrcCounts[:r.me]) * size / p.unit
	}
	lo, hi := w.clip(n)
	if lo == hi {
		return nil
	}
	for m := range r.world {
		if r.parts[m] = r.view(call, seq, p, w, m, r.me, first, n, lo, hi); r.parts[m].Ptr == nil {
			return r.damagedBuffer(call, m)
		}
	}
	for at, bytes := 0, (hi-lo)*p.unit; at < bytes; {
		run := bytes - at
		for m, part := range r.parts {
			r.srcs[m], run = part.Run(at, run)
		}
		r.dsts[0] = unsafe.Add(call.Dst.Ptr, lo*p.unit+at)
		call.Fold(r.dsts[:1], r.srcs, run/p.unit)
		at += run
	}
	r.dsts[0] = nil
	return nil
}

// landing returns where in Dst the elements from rank m go.
func (r *Rank) landing(call *comm.Call, m int) int {
	switch call.Kind {
	case comm.AllGatherKind, comm.GatherKind, comm.SplitKind, comm.AllToAllKind:
		return m * (call.Dst.Count / len(r.world))
	case comm.AllGatherVKind, comm.GatherVKind, comm.AllToAllVKind:
		return sum(call.DstCounts[:m])
	}
	return 0
}
