//go:build linux && !nolibs

package mpi

import (
	"context"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/comm/mpi/exchange"
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// fewPeers is up to how many ranks a call that only moves data is made of messages
// between all pairs of them. The libraries' own non-blocking collectives first
// write down what they are to do: with 2 ranks, Open MPI 4.1.4 and 8 bytes they
// take 4 times as long as the messages. From more ranks on their trees need fewer.
const fewPeers = 4

// smallTree is up to how many bytes a root sends to each of a few ranks itself.
const smallTree = 64 << 10

// byMessages reports whether a call without arithmetic is made of messages though
// the library has a collective for it.
func (r *Rank) byMessages(call *backend.Call) bool {
	switch {
	case call.Kind.Reduces() || len(r.world) > fewPeers:
		return false
	case call.Kind == backend.BroadcastKind:
		return len(r.world) == 2 || call.Dst.Bytes() <= smallTree
	}
	return true
}

// pairs carries out a call that only moves data, by messages between pairs of
// ranks: those between few, those whose counts only the two know, and those too
// large for MPI's.
func (r *Rank) pairs(ctx context.Context, call *backend.Call) error {
	if err := r.deal(call); err != nil {
		return err
	}
	return r.exchange(ctx, call)
}

// deal fills r.sends and r.recvs with what a call that only moves data has each rank
// send and receive.
func (r *Rank) deal(call *backend.Call) error {
	r.clear()
	err := exchange.Deal(call, r.me, r.sends, r.recvs)
	if err != nil {
		r.Abort(err)
	}
	return err
}

// clear makes r.sends and r.recvs empty: one buffer for each rank.
func (r *Rank) clear() {
	if r.sends == nil {
		r.sends, r.recvs = make([]backend.Buffer, len(r.world)), make([]backend.Buffer, len(r.world))
	}
	clear(r.sends)
	clear(r.recvs)
}

// exchange sends r.sends[q] to each rank q and receives r.recvs[q] from it.
// Empty ones make no message.
func (r *Rank) exchange(ctx context.Context, call *backend.Call) error {
	if err := r.swap(ctx, call); err != nil {
		return err
	}
	if own := r.sends[r.me]; own.Count > 0 && own.Ptr != r.recvs[r.me].Ptr {
		simd.Copy(r.recvs[r.me].Data(), own.Data()) // last: until then the others read own from this core's cache
	}
	return nil
}

// swap is exchange with the other ranks.
func (r *Rank) swap(ctx context.Context, call *backend.Call) error {
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
	return r.wait(ctx, call, nil)
}

// barrier waits for all other ranks, by messages of nothing between each two.
func (r *Rank) barrier(ctx context.Context, call *backend.Call) error {
	n, nothing := len(r.world), backend.Buffer{DType: dtype.Uint8}
	for i := 1; i < n; i++ {
		if err := r.message(true, irecv, nothing, (r.me+n-i)%n, tagPair); err != nil {
			return err
		}
	}
	for i := 1; i < n; i++ {
		if err := r.message(false, isend, nothing, (r.me+i)%n, tagPair); err != nil {
			return err
		}
	}
	return r.wait(ctx, call, nil)
}
