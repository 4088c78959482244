package mem

import (
	"context"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// A direction is a sender and a receiver in a group.
type direction struct{ from, to int }

// A sendSlot holds the Send of one direction that waits for its Recv, if there is one.
type sendSlot struct {
	call    *comm.Call  // nil: none
	refused *comm.Party // the Recv that did not match it
	err     error       // what both return if it was refused
}

// A messageNeed is what a Send or a Recv waits for: the need of wait.
type messageNeed struct {
	*sendSlot
	sent bool // the call is a Send
	from int  // the other side's world number
}

func (a *messageNeed) done() bool {
	if a.sent {
		return a.call == nil || a.refused != nil
	}
	return a.call != nil
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

func (r *Rank) party(call *comm.Call) comm.Party {
	return comm.Party{Rank: r.g.world[r.rank], Call: call.String(), Site: call.Site()}
}

// message carries out a Send or a Recv.
func (r *Rank) message(ctx context.Context, call *comm.Call) error {
	if call.Kind == comm.SendKind {
		return r.send(ctx, call)
	}
	return r.recv(ctx, call)
}

// send posts the call and waits until it has been read.
func (r *Rank) send(ctx context.Context, call *comm.Call) error {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	if e := r.g.dead(); e != nil {
		return e
	}
	l := r.g.sendSlot(r.rank, call.Root)
	l.call = call
	r.g.wake.Broadcast()
	r.messageNeed = messageNeed{l, true, r.g.world[call.Root]}
	err := r.wait(ctx, call, &r.messageNeed)
	if l.refused != nil {
		l.err = comm.Mismatch(r.party(call), *l.refused)
		r.abort(l.err)
		r.g.wake.Broadcast()
		return l.err
	}
	return err
}

// recv waits for the Send of its direction, and copies its data.
func (r *Rank) recv(ctx context.Context, call *comm.Call) error {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	if e := r.g.dead(); e != nil {
		return e
	}
	l := r.g.sendSlot(call.Root, r.rank)
	r.messageNeed = messageNeed{l, false, r.g.world[call.Root]}
	err := r.wait(ctx, call, &r.messageNeed)
	if err != nil {
		return err
	}
	if e := r.g.dead(); e != nil { // the sender may have gone
		return e
	}
	if l.call.Fingerprint() != call.Fingerprint() {
		party := r.party(call)
		l.refused = &party
		r.g.wake.Broadcast()
		for l.err == nil { // the sender still waits: it alone knows the line of its call
			r.g.wake.Wait()
		}
		return l.err
	}
	simd.Copy(call.Dst.Data(), l.call.Src.Data())
	l.call = nil
	r.g.wake.Broadcast()
	return nil
}
