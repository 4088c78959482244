package shm

import (
	"context"

	"github.com/gorun-spmd/gorun/comm/backend"
)

// SendRecv publishes the whole message at once, receives, and then waits until the receiver has
// read the message. So ranks that all make this call do not wait for each other. A message from
// outside the arena is copied into the arena whole.
func (r *Rank) SendRecv(ctx context.Context, send, recv *backend.Call) error {
	if err := r.alarmed(send); err != nil {
		return err
	}
	to, f := send.Root, send.Fingerprint()
	r.log(send, 0, f)
	c := r.region.cell(r.me, to)
	r.mine.hasSent()
	if err := r.await(ctx, send, to, &c.taken, r.sent[to]); err != nil {
		return err
	}
	data, mode := send.Src.Data(), inArena
	switch at, ok := r.job.arena.offset(send.Src.Ptr, len(data)); {
	case len(data) <= bodyBytes:
		mode = inSlot
		copy(c.body[:], data)
	case ok:
		*c.at() = uint64(at)
	default:
		p, err := r.job.stagingBlock(len(data))
		if err != nil {
			return r.quit(err)
		}
		defer r.job.arena.Free(p, len(data)) // a receiver that still reads it gets an error
		move(p, send.Src.Ptr, len(data))
		at, _ := r.job.arena.offset(p, len(data))
		*c.at() = uint64(at)
	}
	c.what, c.count, c.summary = f.What, f.Count, uint64(mode)|uint64(len(data))<<8
	r.sent[to]++
	c.seq.Store(r.sent[to])
	r.ring()
	r.log(recv, 0, f)
	if err := r.recv(ctx, recv, recv.Fingerprint()); err != nil || mode == inSlot {
		return err
	}
	if err := r.await(ctx, send, to, &c.taken, r.sent[to]); err != nil {
		return err
	}
	return r.alarmed(send)
}
