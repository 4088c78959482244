//go:build linux && !nolibs

package mpi

import (
	"context"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/fold"
)

// smallTwo is up to how many bytes two ranks carry out a call in one pass of the
// gate each, without the bookkeeping that more ranks and longer messages need.
const smallTwo = 16 << 10

// two carries out a small call of two ranks, each of which sends at most one
// message to the other; ok is false if the call is not of that sort. Both ranks know the
// length of a message, so both decide alike.
func (r *Rank) two(ctx context.Context, call *backend.Call) (ok bool, err error) {
	s, peer := call.Kind.Shape(), 1-r.me
	var mine, send, recv backend.Buffer // mine stays here
	switch {
	case s.Dst == backend.Counted || s.Src == backend.Counted || s.Root == backend.RootReceives || s.Root == backend.RootSends:
		return false, nil
	case s.Pattern == backend.PatternMove:
		source := call.Source(r.me)
		send, mine = outgoing(call, source, r.me, peer), outgoing(call, source, r.me, r.me)
		recv = incoming(call, r.me, peer)
	case s.Pattern == backend.PatternReduce || s.Pattern == backend.PatternReduceScatter:
		send, mine = outgoing(call, call.Src, r.me, peer), outgoing(call, call.Src, r.me, r.me)
		recv = send
	case s.Pattern != backend.PatternBarrier:
		return false, nil
	}
	if max(send.Bytes(), recv.Bytes()) > smallTwo || r.most < smallTwo {
		return false, nil
	}
	if call.Kind.Reduces() {
		recv = r.spare(recv)
	} else if mine.Count > 0 {
		copy(incoming(call, r.me, r.me).Data(), mine.Data())
	}
	if s.Root == backend.NoRoot || r.me != call.Root {
		if err := r.brief(true, irecv, r.at(recv, 0), recv.Bytes(), peer); err != nil {
			return true, err
		}
	}
	if s.Root == backend.NoRoot || r.me == call.Root {
		if err := r.brief(false, isend, r.at(send, 1), send.Bytes(), peer); err != nil {
			return true, err
		}
	}
	if err := r.wait(ctx, call, nil); err != nil || recv.Count == 0 || !call.Kind.Reduces() {
		return true, err
	}
	if mine.Ptr == call.Dst.Ptr && r.me > 0 && call.Op == fold.Custom { // only the first source may be the destination
		mine.Ptr = r.slot(mine, 1)
		copy(mine.Data(), call.Src.Data())
	}
	r.srcs = append(r.srcs[:0], mine.Ptr, mine.Ptr)
	r.srcs[peer] = recv.Ptr
	r.dsts[0] = call.Dst.Ptr
	call.Fold(r.dsts[:1], r.srcs, mine.Bytes()/call.Unit())
	return true, nil
}

// outgoing is what rank me of two gives to a rank of its source, and incoming what it
// gets from one.
func outgoing(call *backend.Call, source backend.Buffer, me, to int) backend.Buffer {
	at, n := call.Outgoing(me, to, 2)
	return source.Slice(at, at+n)
}

func incoming(call *backend.Call, me, from int) backend.Buffer {
	at, n := call.Incoming(me, from, 2)
	return call.Dst.Slice(at, at+n)
}

// brief begins the message of n bytes at an address: in two if both then go at once and the
// one would not. With 2 ranks, Open MPI 4.1.4 and 4 KiB that takes 0.6 µs and not 3. One
// that is longer than its receiver expects is too long in one of the two as well.
func (r *Rank) brief(receive bool, f function, at uintptr, n, peer int) error {
	dt, first := r.job.lib.handles[typeByte], n
	if eager := r.job.lib.eager; n > eager && n <= 2*eager {
		first = eager
	}
	err := r.begin(receive, f, at, uintptr(first), dt, uintptr(peer), r.tag(receive, tagPair, first, peer), r.comm)
	if err != nil || first == n {
		return err
	}
	n -= first
	return r.begin(receive, f, at+uintptr(first), uintptr(n), dt, uintptr(peer), r.tag(receive, tagPair, n, peer), r.comm)
}

// spare is a buffer like b in scratch.
func (r *Rank) spare(b backend.Buffer) backend.Buffer {
	b.Ptr = r.slot(b, 0)
	return b
}
