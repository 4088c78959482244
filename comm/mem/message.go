package mem

import (
	"context"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// A direction is a sender and a receiver in a group.
type direction struct{ from, to int }

// A sendSlot holds the Send of one direction that waits for its Recv, if there is one.
type sendSlot struct {
	call    *backend.Call  // nil: none
	refused *backend.Party // the Recv that did not match it
	err     error          // if it was refused, the error of both calls
}

// A messageNeed is the need of a Send or a Recv.
type messageNeed struct {
	*sendSlot
	sent bool      // the call is a Send
	from int       // the other side's world number
	out  *sendSlot // if the call is the Recv of a SendRecv: the slot of its Send
}

func (a *messageNeed) done() bool {
	if a.sent {
		return a.call == nil || a.refused != nil
	}
	return a.call != nil || a.out != nil && a.out.refused != nil
}

func (a *messageNeed) missing() []int { return []int{a.from} }

// sendSlot returns the slot of a direction.
func (g *group) sendSlot(from, to int) *sendSlot {
	l := g.sends[direction{from, to}]
	if l == nil {
		l = new(sendSlot)
		g.sends[direction{from, to}] = l
	}
	return l
}

func (r *Rank) party(call *backend.Call) backend.Party {
	return call.Party(r.g.number(r.rank))
}

// message carries out a Send or a Recv.
func (r *Rank) message(ctx context.Context, call *backend.Call) error {
	if call.Kind == backend.SendKind {
		return r.send(ctx, call)
	}
	return r.recv(ctx, call)
}

// send posts the call and waits until it has been read.
func (r *Rank) send(ctx context.Context, call *backend.Call) error {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	if e := r.g.dead(); e != nil {
		return e
	}
	return r.sent(ctx, call, r.post(call))
}

// post shows a Send to its receiver; the job's lock is held, as in what follows.
func (r *Rank) post(call *backend.Call) *sendSlot {
	l := r.g.sendSlot(r.rank, call.Root)
	l.call = call
	r.g.ranks[call.Root].wake.Signal()
	return l
}

// sent waits until a Send that was posted has been read.
func (r *Rank) sent(ctx context.Context, call *backend.Call, l *sendSlot) error {
	r.messageNeed = messageNeed{sendSlot: l, sent: true, from: r.g.world[call.Root]}
	err := r.wait(ctx, call, &r.messageNeed)
	if l.refused != nil {
		return r.refuse(call, l)
	}
	return err
}

// refuse ends the group because the receiver has refused this rank's Send. The sender alone knows
// the line of its call.
func (r *Rank) refuse(call *backend.Call, l *sendSlot) error {
	if l.err == nil {
		l.err = backend.Mismatch(r.party(call), *l.refused)
		r.abort(l.err)
		r.g.ranks[call.Root].wake.Signal()
	}
	return l.err
}

// recv waits for the Send of its direction, and copies its data.
func (r *Rank) recv(ctx context.Context, call *backend.Call) error {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	if e := r.g.dead(); e != nil {
		return e
	}
	return r.take(ctx, call, nil, nil)
}

// take is recv with the job's lock held. For the Recv of a SendRecv, send is the Send, posted in out.
func (r *Rank) take(ctx context.Context, call, send *backend.Call, out *sendSlot) error {
	l := r.g.sendSlot(call.Root, r.rank)
	r.messageNeed = messageNeed{sendSlot: l, from: r.g.world[call.Root], out: out}
	err := r.wait(ctx, call, &r.messageNeed)
	if err != nil {
		return err
	}
	if e := r.g.dead(); e != nil { // the sender may have left
		return e
	}
	if out != nil && out.refused != nil {
		return r.refuse(send, out)
	}
	if l.call.Fingerprint() != call.Fingerprint() {
		party := r.party(call)
		l.refused = &party
		r.g.ranks[call.Root].wake.Signal()
		for l.err == nil { // the sender still waits
			if out != nil && out.refused != nil { // as this one does
				return r.refuse(send, out)
			}
			r.wake.Wait()
		}
		return l.err
	}
	simd.Copy(call.Dst.Data(), l.call.Src.Data())
	l.call = nil
	r.g.ranks[call.Root].wake.Signal()
	return nil
}

// SendRecv posts a Send, carries out a Recv and waits until the Send has been read.
func (r *Rank) SendRecv(ctx context.Context, send, recv *backend.Call) error {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	if e := r.g.dead(); e != nil {
		return e
	}
	out := r.post(send)
	err := r.take(ctx, recv, send, out)
	switch {
	case err != nil && out.refused != nil: // its receiver waits for the reason
		return r.refuse(send, out)
	case err != nil:
		return err
	}
	return r.sent(ctx, send, out)
}
