//go:build linux && !nolibs

package mpi

import (
	"context"

	"github.com/gorun-spmd/gorun/comm/backend"
)

// SendRecv begins a Send and a Recv, each with its notes as Do has them, and waits for all of it.
// So ranks that all make this call do not wait for each other.
func (r *Rank) SendRecv(ctx context.Context, send, recv *backend.Call) error {
	r.current, r.sending = recv, *send // r.sending outlives the caller's call, as requests may
	defer func() { r.current, r.sending = nil, backend.Call{} }()
	if e := r.dead(); e != nil {
		return e
	}
	r.number(send)
	r.number(recv)
	if err := r.news(); err != nil {
		return err
	}
	n, err := r.exchangeNotes(send, recv)
	if err != nil {
		return err
	}
	if err := r.message(true, irecv, recv.Dst, recv.Root, tagMessage); err != nil {
		return err
	}
	if err := r.message(false, isend, send.Src, send.Root, tagMessage); err != nil {
		return err
	}
	differing := 0
	var arrived func(i int) error
	if n > 0 {
		arrived = func(i int) error {
			if i >= n {
				return nil
			}
			if r.notes[i].fingerprint() == [...]*backend.Call{recv, send}[i].Fingerprint() {
				return nil
			}
			differing = i
			return errDiffers
		}
	}
	if err := r.wait(ctx, recv, arrived); err != errDiffers {
		return err
	}
	if n == 1 { // the other rank does not compare
		return r.differ(recv)
	}
	return r.disagree(ctx, [...]*backend.Call{recv, send}[differing], n, differing)
}

// exchangeNotes begins the notes of both halves. n is how many this rank compares: the first is the one
// that comes with what it receives, the second the one of who receives what it sends.
func (r *Rank) exchangeNotes(send, recv *backend.Call) (n int, err error) {
	r.noted = 0
	if r.checks == checkNone {
		return 0, nil
	}
	r.makeNotes()
	r.notes[0].peer, r.notes[1].peer = recv.Root, send.Root
	if err := r.receiveNote(0, tagCompare); err != nil {
		return 0, err
	}
	n = 1
	if r.checks == checkAll {
		n = 2
		if err := r.receiveNote(1, tagReply); err != nil {
			return 0, err
		}
		if err := r.sendNote(0, tagReply, recv.Fingerprint(), -1, -1); err != nil {
			return 0, err
		}
	}
	r.noted = n
	return n, r.sendNote(1, tagCompare, send.Fingerprint(), -1, -1)
}

// open returns the half of a SendRecv that this rank waits for: the Recv that was given while it has not
// ended, then the Send. It returns any other call as it is.
func (r *Rank) open(call *backend.Call) *backend.Call {
	if r.sending.Kind != backend.SendKind {
		return call
	}
	for _, q := range r.requests {
		if q.receive && !q.done {
			return call
		}
	}
	return &r.sending
}
