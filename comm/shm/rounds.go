package shm

import (
	"context"
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/ints"
)

// A schedule divides into rounds a call for which ranks read each other's memory. It is the
// same on all ranks.
type schedule struct {
	unit   int  // bytes of an element; for a Func, of an element as the Func defines it
	parts  int  // parts of a source: one for each rank, or 1
	half   int  // bytes of one half of a staging block
	most   int  // elements of each part that a round covers; the last round may have fewer
	rounds int  // number of rounds
	copied bool // some rank copies its source through its staging block
	shared bool // all ranks store into each other's memory
	pushed bool // the root of a Broadcast stores into the other ranks' memory
}

// scheduleOf returns the fields of the schedule that depend on the call alone. The others
// depend on the slots of all ranks.
func scheduleOf(call *backend.Call, ranks int) schedule {
	p := schedule{unit: call.DType().Size(), parts: 1, rounds: 1, most: math.MaxInt}
	if call.Kind.Reduces() {
		p.unit = call.Unit()
	}
	if src := call.Kind.Shape().Src; src == backend.Parts || src == backend.Counted {
		p.parts = ranks
	}
	p.half = (max(stageBytes, p.parts*p.unit) + line - 1) &^ (line - 1)
	p.shared = stored(call)
	return p
}

// stored reports whether each rank folds a share of the elements and stores the results into the memory of all.
func stored(call *backend.Call) bool {
	p := call.Kind.Shape().Pattern
	return p == backend.PatternReduce || p == backend.PatternScan
}

// stage makes this rank's staging block large enough for call.
func (r *Rank) stage(call *backend.Call) error {
	half := scheduleOf(call, len(r.world)).half
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

// rounds completes a call if some of its data is outside slots and payload areas.
func (r *Rank) rounds(ctx context.Context, call *backend.Call, seq uint64) error {
	p := scheduleOf(call, len(r.world))
	longest := 0
	for m := range r.world {
		if m != r.me {
			r.locations[m] = *r.region.slot(m, seq).location()
		}
		if r.mode(m) == staged {
			p.copied = true
			longest = max(longest, int(r.locations[m].longest)*call.DType().Size()/p.unit)
		}
	}
	if p.copied {
		p.most = p.half / (p.parts * p.unit)
		if p.most > line {
			p.most &^= line - 1
		}
		p.rounds = max(1, ints.DivUp(longest, p.most))
	}
	p.pushed = shares(call.Kind) && !p.copied
	points := uint64(1)
	if p.copied && p.shared {
		points = 2 * uint64(p.rounds)
	} else if p.copied {
		points += uint64(p.rounds)
	}
	r.exit, r.exposed = r.steps+points, p.shared || p.pushed
	err := r.run(ctx, call, seq, &p)
	if err == nil {
		err = r.alarmed(call) // if a rank left early, data read from it may be wrong
	}
	r.exposed = false
	return err
}

// run carries out the rounds of a call.
func (r *Rank) run(ctx context.Context, call *backend.Call, seq uint64, p *schedule) error {
	own := r.mode(r.me) == staged
	for k := range p.rounds {
		now := round{lo: k * p.most, hi: math.MaxInt, half: k & 1}
		if k < p.rounds-1 {
			now.hi = now.lo + p.most
		}
		if own {
			r.copyIn(call, p, now)
		}
		if p.copied {
			if err := r.pass(ctx, call); err != nil {
				return err
			}
		}
		if err := r.alarmed(call); err != nil { // nobody stores into a rank that has left
			return err
		}
		if err := r.work(call, seq, p, now); err != nil {
			return err
		}
		if p.copied && p.shared {
			if err := r.pass(ctx, call); err != nil {
				return err
			}
			if own {
				r.copyOut(call, p, now)
			}
		}
	}
	if p.copied && p.shared {
		return nil
	}
	return r.pass(ctx, call)
}

// pass waits until all ranks have come to the same point within their calls.
func (r *Rank) pass(ctx context.Context, call *backend.Call) error {
	r.steps++
	r.mine.step.Store(r.steps)
	if r.arrive(&r.region.head.passed, r.steps) {
		r.region.head.openIfAsleep()
	}
	for m, peer := range r.region.members {
		if m != r.me && peer.step.Load() < r.steps {
			if err := r.await(ctx, call, m, &peer.step, r.steps); err != nil {
				return err
			}
		}
	}
	return nil
}

// A round covers elements lo to hi of every part. Half number half of the staging blocks holds them.
type round struct{ lo, hi, half int }

// clip returns which elements of a part of n elements the round covers.
func (o round) clip(n int) (lo, hi int) { return min(o.lo, n), min(o.hi, n) }

// results returns the number of the block, of the three of a staging block, in which others store results: the half of the
// round, but the third one for a Reduce, since the first Dst of a fold is not a later rank's Src, see backend.Call.Fold.
func (o round) results(call *backend.Call) int {
	if call.Kind == backend.ReduceKind {
		return 2
	}
	return o.half
}

// copyIn puts what the round covers of this rank's source, of each part that others read, into its staging block.
func (r *Rank) copyIn(call *backend.Call, p *schedule, now round) {
	src := call.Source(r.me)
	total := src.Bytes() / p.unit
	at := 0
	for q := range p.parts {
		n := total / p.parts
		if call.Kind.Shape().Src == backend.Counted {
			n = call.SrcCounts[q] * call.DType().Size() / p.unit
		}
		own := p.parts > 1 && q == r.me // see from
		if lo, hi := now.clip(n); lo < hi && !own {
			stage := unsafe.Add(r.staging, now.half*p.half+q*p.most*p.unit)
			size := call.DType().Size()
			part := src.Part(call.SrcRows, at*p.unit/size, n*p.unit/size)
			backend.CopyParts(backend.Contiguous(stage), part.From(lo*p.unit), (hi-lo)*p.unit, (hi-lo)*p.unit)
		}
		at += n
	}
}

// copyOut copies this rank's result of the round to Dst from its staging block, into which others have stored it.
func (r *Rank) copyOut(call *backend.Call, p *schedule, now round) {
	if !r.receives(call) {
		return
	}
	if lo, hi := now.clip(call.Dst.Bytes() / p.unit); lo < hi {
		move(unsafe.Add(call.Dst.Ptr, lo*p.unit), unsafe.Add(r.staging, now.results(call)*p.half), (hi-lo)*p.unit)
	}
}

// from returns the address of n elements of rank m's source. The round begins at element
// first of the source, in part number piece; skip elements of the round come before them.
func (r *Rank) from(call *backend.Call, seq uint64, p *schedule, now round, m, piece, first, skip, n int) unsafe.Pointer {
	if m == r.me && (r.mode(r.me) != staged || !p.shared) {
		return unsafe.Add(call.Source(r.me).Ptr, (first+skip)*p.unit)
	}
	switch r.mode(m) {
	case staged:
		return r.inArena(m, r.locations[m].at, now.half*p.half+(piece*p.most+skip)*p.unit, n*p.unit)
	case inArena:
		return r.inArena(m, r.locations[m].at, (first+skip)*p.unit, n*p.unit)
	}
	return r.inlineAt(m, seq, (first+skip)*p.unit, n*p.unit)
}

// mode returns where rank m's data is.
func (r *Rank) mode(m int) uint64 { return r.summary[m] & 0xff }

// view returns elements [lo, hi) of part number piece of rank m's source, which has n
// elements from element first on. Its Ptr is nil if the source has no such elements.
func (r *Rank) view(call *backend.Call, seq uint64, p *schedule, now round, m, piece, first, n, lo, hi int) backend.Part {
	if m == r.me && call.SrcRows > 1 {
		return call.Src.Part(call.SrcRows, first, n).From(lo * p.unit)
	}
	if rows := int(r.locations[m].rows); m != r.me && r.mode(m) == inArena && rows > 1 {
		src := backend.Buffer{Count: int(r.summary[m] >> 8), DType: call.DType()}
		src.Ptr = r.inArena(m, r.locations[m].at, 0, src.Bytes())
		if src.Ptr == nil || first+n > src.Count || src.Count%rows != 0 || n%rows != 0 {
			return backend.Part{}
		}
		return src.Part(rows, first, n).From(lo * p.unit)
	}
	return backend.Contiguous(r.from(call, seq, p, now, m, piece, first+lo, 0, hi-lo))
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

// pulled returns how many of the n elements of a Broadcast a rank copies itself. The root
// stores the others, so that all ranks copy about the same number of bytes.
func (r *Rank) pulled(n, unit int) int {
	bytes := n * unit / len(r.world) * (len(r.world) - 1)
	return min(n, (bytes+line-1)&^(line-1)/unit)
}

// push stores the elements of a Broadcast that are not pulled into the ranks' arenas.
func (r *Rank) push(call *backend.Call) error {
	unit, n := call.DType().Size(), call.Dst.Count
	lo := r.pulled(n, unit)
	for m := range r.world {
		if m == r.me || r.mode(m) != inArena {
			continue
		}
		dst := r.inArena(m, r.locations[m].dst, 0, n*unit)
		if dst == nil {
			return r.damagedBuffer(call, m)
		}
		move(unsafe.Add(dst, lo*unit), unsafe.Add(call.Dst.Ptr, lo*unit), (n-lo)*unit)
	}
	return nil
}

// reduceShared folds this rank's share of the round for all ranks.
func (r *Rank) reduceShared(call *backend.Call, seq uint64, p *schedule, now round) error {
	first, last := now.clip(call.Src.Bytes() / p.unit)
	ranks := len(r.world)
	grain := max(1, line/p.unit) // ranks do not store into one cache line
	chunk := ints.RoundUp(ints.DivUp(last-first, ranks), grain)
	lo := min(r.me*chunk, last-first)
	hi := min(lo+chunk, last-first)
	if lo == hi {
		return nil
	}
	dsts, prefixes := r.dsts[:0], call.Kind.Shape().Pattern == backend.PatternScan
	for m := range r.world {
		r.srcs[m] = r.from(call, seq, p, now, m, 0, first, lo, hi-lo)
		gets := call.Folds(m, ranks) > 0
		var dst unsafe.Pointer
		if gets {
			dst = r.into(call, p, now, m, first, lo, hi-lo)
		}
		if r.srcs[m] == nil || gets && dst == nil {
			return r.damagedBuffer(call, m)
		}
		if gets || prefixes {
			dsts = append(dsts, dst)
		}
	}
	if prefixes {
		r.prefixes.Fold(call, dsts, r.srcs, hi-lo)
	} else {
		call.Fold(dsts, r.srcs, hi-lo)
	}
	return nil
}

// into returns where n elements of the result belong in rank m's memory. The round begins
// at element first, and skip elements of it come before them.
func (r *Rank) into(call *backend.Call, p *schedule, now round, m, first, skip, n int) unsafe.Pointer {
	if r.mode(m) == inArena {
		return r.inArena(m, r.locations[m].dst, (first+skip)*p.unit, n*p.unit)
	}
	return r.inArena(m, r.locations[m].at, now.results(call)*p.half+skip*p.unit, n*p.unit)
}

// reducePart folds what the round covers of this rank's part into its Dst.
func (r *Rank) reducePart(call *backend.Call, seq uint64, p *schedule, now round) error {
	n := call.Dst.Bytes() / p.unit
	lo, hi := now.clip(n)
	if lo == hi {
		return nil
	}
	first, _ := call.Outgoing(r.me, r.me, len(r.world))
	first = first * call.DType().Size() / p.unit
	piece := 0
	if p.parts > 1 {
		piece = r.me
	}
	for m := range r.world {
		if r.parts[m] = r.view(call, seq, p, now, m, piece, first, n, lo, hi); r.parts[m].Ptr == nil {
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
