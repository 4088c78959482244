package shm

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/backend"
)

// message carries out a Send or a Recv through the cell of its direction. A
// message is one piece; memory outside the arenas goes in pieces of stageBytes.
func (r *Rank) message(ctx context.Context, call *backend.Call) error {
	if err := r.alarmed(call); err != nil {
		return err
	}
	f := call.Fingerprint()
	r.log(call, 0, f)
	if call.Kind == backend.SendKind {
		return r.send(ctx, call, f)
	}
	return r.recv(ctx, call, f)
}

// send publishes pieces. It returns when the receiver has read them, or at once if the
// data is in the cell itself.
func (r *Rank) send(ctx context.Context, call *backend.Call, f backend.Fingerprint) error {
	to := call.Root
	c := r.region.cell(r.me, to)
	r.mine.hasSent()
	data := call.Src.Data()
	at, direct := r.job.arena.offset(call.Src.Ptr, len(data))
	if !direct && len(data) > bodyBytes {
		if err := r.stage(call); err != nil {
			return r.quit(err)
		}
	}
	for first := true; first || len(data) > 0; first = false {
		// The cell is free when its last message has been taken.
		if err := r.await(ctx, call, to, &c.taken, r.sent[to]); err != nil {
			return err
		}
		c.what, c.count = f.What, f.Count
		piece, mode := data, inArena
		switch {
		case len(data) <= bodyBytes && first:
			mode = inSlot
			copy(c.body[:], data)
		case direct:
			*c.at() = uint64(at)
		default:
			piece = data[:min(len(data), stageBytes)]
			copy(unsafe.Slice((*byte)(r.staging), stageBytes), piece)
			stage, _ := r.job.arena.offset(r.staging, stageBytes)
			*c.at() = uint64(stage)
		}
		data = data[len(piece):]
		c.summary = uint64(mode) | uint64(len(piece))<<8
		r.sent[to]++
		c.seq.Store(r.sent[to])
		r.ring()
		if mode == inSlot {
			return nil
		}
	}
	if err := r.await(ctx, call, to, &c.taken, r.sent[to]); err != nil {
		return err
	}
	return r.alarmed(call)
}

// recv reads pieces until Dst is full.
func (r *Rank) recv(ctx context.Context, call *backend.Call, f backend.Fingerprint) error {
	from := call.Root
	c := r.region.cell(from, r.me)
	data := call.Dst.Data()
	for first := true; first || len(data) > 0; first = false {
		r.received[from]++
		if err := r.await(ctx, call, from, &c.seq, r.received[from]); err != nil {
			return err
		}
		if c.what != f.What || c.count != f.Count {
			return r.wrongMessage(call, c)
		}
		n := int(c.summary >> 8)
		if n > len(data) {
			return r.damaged(call, from, fmt.Sprintf("a message of %d bytes", n))
		}
		src := unsafe.Pointer(&c.body)
		if c.summary&0xff != inSlot {
			if src = r.inArena(from, *c.at(), 0, n); src == nil {
				return r.damaged(call, from, fmt.Sprintf("where a message of %d bytes lies", n))
			}
		} else if n > bodyBytes {
			return r.damaged(call, from, fmt.Sprintf("a message of %d bytes in a cell", n))
		}
		if n > 0 {
			move(unsafe.Pointer(unsafe.SliceData(data)), src, n)
		}
		data = data[n:]
		c.taken.Store(r.received[from])
		r.ring()
	}
	return r.alarmed(call)
}

// wrongMessage ends the communicator because the message is not the one that call
// expects. If the data was in the cell itself the sender has returned already, so its line
// is unknown.
func (r *Rank) wrongMessage(call *backend.Call, c *cell) error {
	me, from := r.world[r.me], r.world[call.Root]
	if c.summary&0xff != inSlot {
		r.abort(failure{kind: ranksDisagree, a: me, b: from, seq: ^c.seq.Load()})
		return r.failed(call)
	}
	err := backend.Mismatch(
		call.Party(me),
		backend.Party{Rank: from, Call: c.sent()})
	r.abort(failure{kind: ranksUneven, text: err.Error()})
	return r.failed(call)
}
