package shm

import (
	"context"
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
)

// Do carries out one call.
func (r *Rank) Do(ctx context.Context, call *comm.Call) error {
	if call.Kind.PointToPoint() {
		return r.letter(ctx, call)
	}
	if err := r.alarmed(call); err != nil {
		return err
	}
	r.calls++
	seq := r.calls
	f := call.Fingerprint()
	s := r.region.slot(r.me, seq)
	mode, err := r.publish(call, s, seq)
	if err != nil {
		r.Abort(err)
		r.leave()
		return err
	}
	if mode >= inArena && (call.Kind.Reduces() || call.Kind == comm.BroadcastKind) { // from here on others may store into its memory
		r.foreign, r.exit = true, math.MaxUint64
	}
	s.what, s.count = f.What, f.Count
	r.log(call, seq, f) // meanwhile the slot's cache line comes
	s.seq.Store(seq)
	r.ring()
	for m, t := range r.region.slots[seq&1] {
		if m == r.me {
			continue
		}
		if t.seq.Load() < seq {
			if err := r.await(ctx, call, m, &t.seq, seq); err != nil {
				return err
			}
		}
		if t.what != f.What || t.count != f.Count {
			a := r.me
			if m > 0 { // those before m, this one perhaps among them, made its call: whoever comes first names the same
				a = 0
			}
			r.abort(verdict{kind: ranksDisagree, a: r.world[a], b: r.world[m], seq: seq})
			return r.sentence(call)
		}
		r.given[m] = t.given
		mode = max(mode, r.mode(m))
	}
	if counted(call.Kind) {
		if err := r.compareCounts(call, seq); err != nil {
			return err
		}
	}
	if mode <= inPayload {
		return r.inline(call, seq)
	}
	return r.rounds(ctx, call, seq)
}

// publish puts what this rank hands in into its slot s, or where it lies.
func (r *Rank) publish(call *comm.Call, s *slot, seq uint64) (mode uint64, err error) {
	src := r.source(call)
	bytes := src.Bytes()
	switch {
	case bytes <= bodyBytes:
		mode = inSlot
		pack(unsafe.Slice((*byte)(s.data()), bodyBytes), call, src)
	case bytes <= payloadBytes:
		mode = inPayload
		pack(unsafe.Slice((*byte)(r.region.payload(r.me, seq)), payloadBytes), call, src)
	default:
		if mode, err = r.locate(call, src, &r.places[r.me]); err != nil {
			return 0, err
		}
		*s.place() = r.places[r.me]
	}
	if call.Kind == comm.BroadcastKind && call.Root != r.me && call.Dst.Bytes() > payloadBytes {
		if at, ok := r.job.arena.offset(call.Dst.Ptr, call.Dst.Bytes()); ok { // the root stores some of it there
			mode = inArena
			r.places[r.me] = place{dst: uint64(at)}
			*s.place() = r.places[r.me]
		}
	}
	elems := src.Count
	switch call.Kind {
	case comm.GatherVKind:
		if call.Root == r.me {
			r.putCounts(seq, nil, call.DstCounts)
		}
	case comm.ScatterVKind:
		elems = call.Dst.Count
		if call.Root == r.me {
			r.putCounts(seq, call.SrcCounts, nil)
		}
	case comm.AllToAllVKind:
		r.putCounts(seq, call.SrcCounts, call.DstCounts)
	}
	r.given[r.me] = mode | uint64(elems)<<8
	s.given = r.given[r.me]
	return mode, nil
}

// source returns what others need of this rank's buffers.
func (r *Rank) source(call *comm.Call) comm.Buffer {
	switch call.Kind {
	case comm.BroadcastKind:
		if call.Root == r.me {
			return call.Dst
		}
		return comm.Buffer{DType: call.Dst.DType}
	case comm.ScatterKind, comm.ScatterVKind:
		if call.Root != r.me {
			return comm.Buffer{DType: call.Dst.DType}
		}
	case comm.BarrierKind:
		return comm.Buffer{DType: comm.Uint8}
	}
	return call.Src
}

// locate says where src lies, and dst if others store into it.
func (r *Rank) locate(call *comm.Call, src comm.Buffer, p *place) (mode uint64, err error) {
	at, ok := r.job.arena.offset(src.Ptr, src.Bytes())
	*p = place{at: uint64(at), rows: uint64(call.SrcRows)}
	if ok && r.receives(call) {
		at, ok = r.job.arena.offset(call.Dst.Ptr, call.Dst.Bytes())
		p.dst = uint64(at)
	}
	if ok {
		return inArena, nil
	}
	if err := r.stage(call); err != nil {
		return 0, err
	}
	at, _ = r.job.arena.offset(r.staging, 3*r.stagingBytes)
	*p = place{at: uint64(at), longest: uint64(src.Count)}
	switch call.Kind {
	case comm.AllToAllKind, comm.ScatterKind, comm.ReduceScatterKind:
		p.longest = uint64(src.Count / len(r.world))
	case comm.AllToAllVKind, comm.ScatterVKind, comm.ReduceScatterVKind:
		p.longest = 0
		for _, n := range call.SrcCounts {
			p.longest = max(p.longest, uint64(n))
		}
	}
	return staged, nil
}

// receives reports whether other ranks store into this rank's Dst.
func (r *Rank) receives(call *comm.Call) bool {
	return call.Kind == comm.AllReduceKind || call.Kind == comm.ReduceKind && call.Root == r.me
}

// putCounts publishes count vectors; nil leaves one as it is.
func (r *Rank) putCounts(seq uint64, has, expects []int) {
	h, e := r.region.vectors(r.me, seq)
	for i, n := range has {
		h[i] = uint64(n)
	}
	for i, n := range expects {
		e[i] = uint64(n)
	}
}

// compareCounts checks that what this rank sends is what others expect, and
// the reverse.
func (r *Rank) compareCounts(call *comm.Call, seq uint64) error {
	given := func(m int) int { return int(r.given[m] >> 8) }
	check := func(from int, sent uint64, to int, expected uint64) error {
		if sent != expected {
			return r.uneven(call, from, int(sent), to, int(expected))
		}
		return nil
	}
	for m := range r.world {
		var err error
		switch call.Kind {
		case comm.AllToAllVKind:
			has, expects := r.region.vectors(m, seq)
			if err = check(m, has[r.me], r.me, uint64(call.DstCounts[m])); err == nil {
				err = check(r.me, uint64(call.SrcCounts[m]), m, expects[r.me])
			}
		case comm.GatherVKind:
			if r.me == call.Root || m == r.me {
				_, expects := r.region.vectors(call.Root, seq)
				err = check(m, uint64(given(m)), call.Root, expects[m])
			}
		case comm.ScatterVKind:
			if r.me == call.Root || m == r.me {
				has, _ := r.region.vectors(call.Root, seq)
				err = check(call.Root, has[m], m, uint64(given(m)))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// counted reports whether ranks that take part in a call of kind k know counts
// that the others do not.
func counted(k comm.Kind) bool {
	return k == comm.AllToAllVKind || k == comm.GatherVKind || k == comm.ScatterVKind
}
