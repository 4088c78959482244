//go:build linux && !nolibs

package mpi

import (
	"context"

	"github.com/gorun-spmd/gorun/comm"
)

// pairs carries out a call that only moves data, by messages between pairs of
// ranks: those whose counts only the two know, and those too large for MPI's.
func (r *Rank) pairs(ctx context.Context, call *comm.Call) error {
	n := len(r.world)
	r.clear()
	switch call.Kind {
	case comm.AllGatherKind, comm.SplitKind, comm.AllGatherVKind:
		for q := range n {
			r.sends[q] = call.Src
		}
		r.parts(r.recvs, call.Dst, call.DstCounts)
	case comm.GatherKind, comm.GatherVKind:
		r.sends[call.Root] = call.Src
		if r.me == call.Root {
			r.parts(r.recvs, call.Dst, call.DstCounts)
		}
	case comm.ScatterKind, comm.ScatterVKind:
		r.recvs[call.Root] = call.Dst
		if r.me == call.Root {
			r.parts(r.sends, call.Src, call.SrcCounts)
		}
	case comm.AllToAllKind, comm.AllToAllVKind:
		r.parts(r.sends, call.Src, call.SrcCounts)
		r.parts(r.recvs, call.Dst, call.DstCounts)
	}
	return r.exchange(ctx, call)
}

// clear makes r.sends and r.recvs empty: one buffer for each rank.
func (r *Rank) clear() {
	if r.sends == nil {
		r.sends, r.recvs = make([]comm.Buffer, len(r.world)), make([]comm.Buffer, len(r.world))
	}
	clear(r.sends)
	clear(r.recvs)
}

// parts divides b by counts, evenly if there are none.
func (r *Rank) parts(into []comm.Buffer, b comm.Buffer, counts []int) {
	lo, n := 0, b.Count/len(r.world)
	for q := range into {
		if counts != nil {
			n = counts[q]
		}
		into[q] = b.Slice(lo, lo+n)
		lo += n
	}
}

// exchange sends r.sends[q] to each rank q and receives r.recvs[q] from it.
// Empty ones make no message.
func (r *Rank) exchange(ctx context.Context, call *comm.Call) error {
	n := len(r.world)
	for i := 1; i < n; i++ {
		from := (r.me + n - i) % n
		if r.recvs[from].Count > 0 {
			if err := r.message(true, irecv, r.recvs[from], from, tagPair); err != nil {
				return err
			}
		}
	}
	for i := 1; i < n; i++ {
		to := (r.me + i) % n
		if r.sends[to].Count > 0 {
			if err := r.message(false, isend, r.sends[to], to, tagPair); err != nil {
				return err
			}
		}
	}
	if own := r.sends[r.me]; own.Count > 0 && own.Ptr != r.recvs[r.me].Ptr {
		copy(r.recvs[r.me].Data(), own.Data())
	}
	return r.wait(ctx, call, nil)
}
