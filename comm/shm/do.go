package shm

import (
	"context"
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/backend"
)

// Do carries out one call.
func (r *Rank) Do(ctx context.Context, call *backend.Call) error {
	if err := call.Carried("comm/shm", patterns); err != nil {
		return r.quit(err)
	}
	if call.Kind.PointToPoint() {
		return r.message(ctx, call)
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
		return r.quit(err)
	}
	if mode >= inArena && (call.Kind.Reduces() || shares(call.Kind)) { // once published, others may store into this rank's memory
		r.exposed, r.exit = true, math.MaxUint64
	}
	s.what, s.count = f.What, f.Count
	r.log(call, seq, f) // meanwhile the slot's cache line arrives
	s.seq.Store(seq)
	if r.settles && settled(call) {
		return r.settle(ctx, call, seq, f)
	}
	if r.arrive(&r.region.head.begun, seq) {
		r.region.head.openIfAsleep()
	}
	if mode, err = r.meet(ctx, call, seq, f, mode); err != nil {
		return err
	}
	if call.Kind.Shape().Pairwise() {
		if err := r.compareCounts(call, seq); err != nil {
			return err
		}
	}
	if mode <= inPayload {
		return r.inline(call, seq)
	}
	return r.rounds(ctx, call, seq)
}

// meet waits until all ranks have published call seq, and returns the highest of their modes. If a rank's
// call differs from this rank's, meet ends the communicator.
func (r *Rank) meet(ctx context.Context, call *backend.Call, seq uint64, f backend.Fingerprint, mode uint64) (uint64, error) {
	for m := range r.world {
		if m == r.me {
			continue
		}
		t := r.region.slot(m, seq)
		if t.seq.Load() < seq {
			if err := r.await(ctx, call, m, &t.seq, seq); err != nil {
				return 0, err
			}
		}
		if t.what != f.What || t.count != f.Count {
			a := r.me
			if m > 0 { // rank 0's call is like this rank's, so every rank names the same two
				a = 0
			}
			r.abort(failure{kind: ranksDisagree, a: r.world[a], b: r.world[m], seq: seq})
			return 0, r.failed(call)
		}
		r.summary[m] = t.summary
		mode = max(mode, r.mode(m))
	}
	return mode, nil
}

// publish puts this rank's source into slot s or the payload area, or says in the slot where
// it lies.
func (r *Rank) publish(call *backend.Call, s *slot, seq uint64) (mode uint64, err error) {
	src := call.Source(r.me)
	bytes := src.Bytes()
	switch {
	case bytes <= bodyBytes:
		mode = inSlot
		pack(unsafe.Slice((*byte)(s.data()), bodyBytes), call, src)
	case bytes <= payloadBytes:
		mode = inPayload
		pack(unsafe.Slice((*byte)(r.region.payload(r.me, seq)), payloadBytes), call, src)
	default:
		if mode, err = r.locate(call, src, &r.locations[r.me]); err != nil {
			return 0, err
		}
		*s.location() = r.locations[r.me]
	}
	if shares(call.Kind) && call.Root != r.me && call.Dst.Bytes() > payloadBytes {
		if at, ok := r.job.arena.offset(call.Dst.Ptr, call.Dst.Bytes()); ok { // the root stores into it
			mode = inArena
			r.locations[r.me] = location{dst: uint64(at)}
			*s.location() = r.locations[r.me]
		}
	}
	elems := src.Count
	switch shape := call.Kind.Shape(); {
	case !shape.Pairwise():
	case shape.Root == backend.NoRoot:
		r.putCounts(seq, call.SrcCounts, call.DstCounts)
	case call.Root == r.me:
		if shape.Root == backend.RootSends {
			elems = call.Dst.Count
			r.putCounts(seq, call.SrcCounts, nil)
		} else {
			r.putCounts(seq, nil, call.DstCounts)
		}
	case shape.Root == backend.RootSends:
		elems = call.Dst.Count
	}
	r.summary[r.me] = mode | uint64(elems)<<8
	s.summary = r.summary[r.me]
	return mode, nil
}

// shares reports whether the other ranks receive the root's Dst.
func shares(k backend.Kind) bool { return k.Shape().Root == backend.RootShares }

// locate fills p with the place of src, and of Dst if other ranks store into it. Memory outside
// the arena goes through the staging block.
func (r *Rank) locate(call *backend.Call, src backend.Buffer, p *location) (mode uint64, err error) {
	at, ok := r.job.arena.offset(src.Ptr, src.Bytes())
	*p = location{at: uint64(at), rows: uint64(call.SrcRows)}
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
	*p = location{at: uint64(at), longest: uint64(src.Count)}
	switch call.Kind.Shape().Src {
	case backend.Parts:
		p.longest = uint64(src.Count / len(r.world))
	case backend.Counted:
		p.longest = 0
		for m, n := range call.SrcCounts {
			if m != r.me { // which reads its own part where it lies
				p.longest = max(p.longest, uint64(n))
			}
		}
	}
	return staged, nil
}

// receives reports whether other ranks store into this rank's Dst.
func (r *Rank) receives(call *backend.Call) bool {
	return stored(call) && call.Folds(r.me, len(r.world)) > 0
}

// putCounts publishes this rank's count vectors. A nil vector stays as it was.
func (r *Rank) putCounts(seq uint64, has, expects []int) {
	h, e := r.region.vectors(r.me, seq)
	for i, n := range has {
		h[i] = uint64(n)
	}
	for i, n := range expects {
		e[i] = uint64(n)
	}
}

// compareCounts checks that the others expect as many elements as this rank sends them, and
// the reverse.
func (r *Rank) compareCounts(call *backend.Call, seq uint64) error {
	summary := func(m int) int { return int(r.summary[m] >> 8) }
	check := func(from int, sent uint64, to int, expected uint64) error {
		if sent != expected {
			return r.uneven(call, from, int(sent), to, int(expected))
		}
		return nil
	}
	for m := range r.world {
		var err error
		switch call.Kind.Shape().Root {
		case backend.NoRoot:
			has, expects := r.region.vectors(m, seq)
			if err = check(m, has[r.me], r.me, uint64(call.DstCounts[m])); err == nil {
				err = check(r.me, uint64(call.SrcCounts[m]), m, expects[r.me])
			}
		case backend.RootReceives:
			if r.me == call.Root || m == r.me {
				_, expects := r.region.vectors(call.Root, seq)
				err = check(m, uint64(summary(m)), call.Root, expects[m])
			}
		case backend.RootSends:
			if r.me == call.Root || m == r.me {
				has, _ := r.region.vectors(call.Root, seq)
				err = check(call.Root, has[m], m, uint64(summary(m)))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
