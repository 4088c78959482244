package mem

import (
	"context"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// pair is a direction between two ranks of a group.
type pair struct{ from, to int }

// letter is the Send of one direction that waits for its Recv, if there is one.
type letter struct {
	call    *comm.Call  // nil: none
	refused *comm.Party // the Recv that it is not for
	err     error       // then, what both return
}

// letter returns that of a direction.
func (g *group) letter(from, to int) *letter {
	l := g.mail[pair{from, to}]
	if l == nil {
		l = new(letter)
		g.mail[pair{from, to}] = l
	}
	return l
}

func (r *Rank) party(call *comm.Call) comm.Party {
	return comm.Party{Rank: r.g.world[r.rank], Call: call.String(), Site: call.Site()}
}

// send posts the call and waits until it has been read.
func (r *Rank) send(ctx context.Context, call *comm.Call) error {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	if e := r.g.dead(); e != nil {
		return e
	}
	l := r.g.letter(r.rank, call.Root)
	l.call = call
	r.g.wake.Broadcast()
	answered := func() bool { return l.call == nil || l.refused != nil }
	err := r.wait(ctx, answered, func() []int { return []int{r.g.world[call.Root]} })
	if l.refused != nil {
		l.err = comm.Mismatch(r.party(call), *l.refused)
		r.abort(l.err)
		r.g.wake.Broadcast()
		return l.err
	}
	return err
}

// recv takes the letter.
func (r *Rank) recv(ctx context.Context, call *comm.Call) error {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	if e := r.g.dead(); e != nil {
		return e
	}
	l := r.g.letter(call.Root, r.rank)
	err := r.wait(ctx, func() bool { return l.call != nil }, func() []int { return []int{r.g.world[call.Root]} })
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
		for l.err == nil { // the sender is there, and knows where it made its call
			r.g.wake.Wait()
		}
		return l.err
	}
	simd.Copy(call.Dst.Data(), l.call.Src.Data())
	l.call = nil
	r.g.wake.Broadcast()
	return nil
}
