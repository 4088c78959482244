package shm

import (
	"context"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/fold"
)

// settled reports whether one rank carries out call for all in a crowd of more than manyRanks: if each rank read
// what each has published, the call would take time in proportion to the square of their number.
func settled(call *backend.Call) bool {
	switch call.Kind {
	case backend.BarrierKind:
		return true
	case backend.AllReduceKind:
		return call.Op != fold.Custom && call.Dst.Bytes() <= payloadBytes
	default:
		return false
	}
}

// settle completes a call that is settled: the last rank to come compares the calls of all and folds their elements,
// in rank order as each rank would; the others copy its result. The next result comes when all have begun the next
// call and so have copied this one.
func (r *Rank) settle(ctx context.Context, call *backend.Call, seq uint64, f backend.Fingerprint) error {
	head, bytes := r.region.head, call.Dst.Bytes()
	if !r.arrive(&head.begun, seq) {
		if err := r.await(ctx, call, (r.me+1)%len(r.world), &head.settled, seq); err != nil {
			return err
		}
		move(call.Dst.Ptr, r.region.result(), bytes)
		return nil
	}
	head.settler.Store(uint32(r.me))
	if _, err := r.meet(ctx, call, seq, f, inSlot); err != nil {
		return err
	}
	if err := r.inline(call, seq); err != nil {
		return err
	}
	move(r.region.result(), call.Dst.Ptr, bytes)
	head.settled.Store(seq)
	head.openIfAsleep()
	return nil
}
