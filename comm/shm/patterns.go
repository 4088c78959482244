package shm

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/backend"
)

// patterns are the patterns that Do carries out.
const patterns = 1<<backend.PatternBarrier | 1<<backend.PatternMessage | 1<<backend.PatternMove |
	1<<backend.PatternReduce | 1<<backend.PatternReduceScatter | 1<<backend.PatternScan

// inline completes a call all of whose data is in slots or payload areas: each rank takes
// its result from there without waiting again.
func (r *Rank) inline(call *backend.Call, seq uint64) error {
	switch call.Kind.Shape().Pattern {
	case backend.PatternBarrier:
		return nil
	case backend.PatternMove:
		return r.moveInline(call, seq)
	case backend.PatternReduce, backend.PatternReduceScatter, backend.PatternScan:
		return r.foldInline(call, seq)
	default:
		return r.unknown(call)
	}
}

// work does this rank's share of a round.
func (r *Rank) work(call *backend.Call, seq uint64, p *schedule, now round) error {
	switch call.Kind.Shape().Pattern {
	case backend.PatternMove:
		return r.moveRound(call, seq, p, now)
	case backend.PatternReduce, backend.PatternScan:
		return r.reduceShared(call, seq, p, now)
	case backend.PatternReduceScatter:
		return r.reducePart(call, seq, p, now)
	default:
		return r.unknown(call)
	}
}

// unknown ends the communicator because this package has no code for the call's pattern.
func (r *Rank) unknown(call *backend.Call) error {
	r.Abort(call.Carried("comm/shm", 0))
	return r.failed(call)
}

// moveInline copies this rank's result from the sources of the others.
func (r *Rank) moveInline(call *backend.Call, seq uint64) error {
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
		if dst := call.Dst.Part(call.DstRows, at, n); m != r.me || dst != backend.Contiguous(src) { // else in place
			backend.CopyParts(dst, backend.Contiguous(src), n*size, n*size)
		}
	}
	return nil
}

// moveRound copies what the round covers of this rank's result from the sources of the others.
func (r *Rank) moveRound(call *backend.Call, seq uint64, p *schedule, now round) error {
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
		if i == 0 && call.SrcRows <= 1 && dst == backend.Contiguous(unsafe.Add(call.Source(m).Ptr, first*p.unit)) {
			continue // in place
		}
		backend.CopyParts(dst.From(lo*p.unit), src, (hi-lo)*p.unit, whole)
	}
	return nil
}
