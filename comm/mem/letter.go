package mem

import (
	"context"

	"github.com/gorun-spmd/gorun/comm"
)

// pair is a direction between two ranks of a group.
type pair struct{ from, to int }

// letter is a Send that waits for its Recv.
type letter struct {
	call  *comm.Call
	party comm.Party
	done  bool
	err   error
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
	key := pair{r.rank, call.Root}
	l := &letter{call: call, party: r.party(call)}
	r.g.mail[key] = append(r.g.mail[key], l)
	r.g.wake.Broadcast()
	err := r.wait(ctx, func() bool { return l.done }, func() []int { return []int{r.g.world[call.Root]} })
	if l.err != nil {
		return l.err
	}
	return err
}

// recv takes the oldest letter.
func (r *Rank) recv(ctx context.Context, call *comm.Call) error {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	if e := r.g.dead(); e != nil {
		return e
	}
	key := pair{call.Root, r.rank}
	err := r.wait(ctx, func() bool { return len(r.g.mail[key]) > 0 }, func() []int { return []int{r.g.world[call.Root]} })
	if err != nil {
		return err
	}
	if e := r.g.dead(); e != nil { // the sender may have gone
		return e
	}
	l := r.g.mail[key][0]
	r.g.mail[key] = r.g.mail[key][1:]
	if l.call.Fingerprint() != call.Fingerprint() {
		l.err = comm.Mismatch(l.party, r.party(call))
		r.abort(l.err)
	} else {
		copy(call.Dst.Data(), l.call.Src.Data())
	}
	l.done = true
	r.g.wake.Broadcast()
	return l.err
}
