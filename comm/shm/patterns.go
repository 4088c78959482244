package shm

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
)

// patterns are the patterns that Do carries out.
const patterns = 1<<comm.PatternBarrier | 1<<comm.PatternMessage | 1<<comm.PatternMove |
	1<<comm.PatternReduce | 1<<comm.PatternReduceScatter | 1<<comm.PatternScan

// inline completes a call all of whose data is in slots or payload areas: each rank takes
// its result from there without waiting again.
func (r *Rank) inline(call *comm.Call, seq uint64) error {
	switch call.Kind.Shape().Pattern {
	case comm.PatternBarrier:
		return nil
	case comm.PatternMove:
		return r.moveInline(call, seq)
	case comm.PatternReduce, comm.PatternReduceScatter, comm.PatternScan:
		return r.foldInline(call, seq)
	default:
		return r.unknown(call)
	}
}

// work does this rank's share of a round.
func (r *Rank) work(call *comm.Call, seq uint64, p *schedule, now round) error {
	switch call.Kind.Shape().Pattern {
	case comm.PatternMove:
		return r.moveRound(call, seq, p, now)
	case comm.PatternReduce, comm.PatternScan:
		return r.reduceShared(call, seq, p, now)
	case comm.PatternReduceScatter:
		return r.reducePart(call, seq, p, now)
	default:
		return r.unknown(call)
	}
}

// unknown ends the communicator because this package has no code for the call's pattern.
func (r *Rank) unknown(call *comm.Call) error {
	r.Abort(call.Carried("comm/shm", 0))
	return r.failed(call)
}

// moveInline copies this rank's result from the sources of the others.
func (r *Rank) moveInline(call *comm.Call, seq uint64) error {
	size := call.DType().Size()
	for m := range r.world {
		at, first, n := r.incoming(call, seq, m)
		if n == 0 {
			continue
		}
		var src unsafe.Pointer
		if m == r.me && call.SrcRows <= 1 {
			src = unsafe.Add(call.Src.Ptr, first*size)
		} else if src = r.inlineAt(m, seq, first*size, n*size); src == nil {
			return r.damagedBuffer(call, m)
		}
		if dst := call.Dst.Part(call.DstRows, at, n); m != r.me || dst != comm.Contiguous(src) { // else in place
			comm.CopyParts(dst, comm.Contiguous(src), n*size, n*size)
		}
	}
	return nil
}

// moveRound copies what the round covers of this rank's result from the sources of the others.
func (r *Rank) moveRound(call *comm.Call, seq uint64, p *schedule, now round) error {
	if p.pushed && call.Root == r.me {
		return r.push(call)
	}
	whole := call.Dst.Bytes()
	for i := range r.world {
		m := (r.me + i) % len(r.world) // ranks begin with different sources
		to, first, n := r.incoming(call, seq, m)
		if p.pushed && n > 0 && r.mode(r.me) == inArena {
			n = r.pulled(n, p.unit)
			whole = n * p.unit
		}
		lo, hi := now.clip(n)
		if lo == hi {
			continue
		}
		piece := 0
		if p.parts > 1 {
			piece = r.me
		}
		src := r.view(call, seq, p, now, m, piece, first, n, lo, hi)
		if src.Ptr == nil {
			return r.damagedBuffer(call, m)
		}
		dst := call.Dst.Part(call.DstRows, to, n)
		if i == 0 && call.SrcRows <= 1 && dst == comm.Contiguous(unsafe.Add(call.Source(m).Ptr, first*p.unit)) {
			continue // in place
		}
		comm.CopyParts(dst.From(lo*p.unit), src, (hi-lo)*p.unit, whole)
	}
	return nil
}
