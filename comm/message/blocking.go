package message

import (
	"context"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/release"
)

// A blockingCall is the request of a call that returns when it has ended. One serves many calls.
type blockingCall struct {
	Request
	call comm.Call // what the backend is told when it waits
	on   func() (int, error)
}

// block makes a call that returns when it has ended. alloc makes the buffer when the length is known; nil: it is there.
func (m *Mailbox) block(ctx context.Context, a *args, alloc func(bytes int) comm.Buffer) (Status, error) {
	if !m.inner.Quiet(a.buf) {
		return m.blockObserved(ctx, *a, alloc)
	}
	a.what = uint64(a.buf.DType)
	st, err := m.complete(ctx, a, m.tally, alloc)
	if err != nil {
		return st, m.inner.FailAlone(a.call(m), err)
	}
	return st, nil
}

// sendRecv makes a receive and a send at once, and returns when both have ended.
func (m *Mailbox) sendRecv(ctx context.Context, in, out *args) (Status, error) {
	if !m.inner.Quiet(in.buf) || !m.inner.Quiet(out.buf) {
		r := m.start(in)
		if _, err := m.block(ctx, out, nil); err != nil {
			r.Cancel()
			return Status{}, err
		}
		return r.Wait(ctx)
	}
	in.what, out.what = uint64(in.buf.DType), uint64(out.buf.DType)
	if err := m.check(out); err != nil {
		return Status{}, m.inner.FailAlone(out.call(m), err)
	}
	if err := m.enterUnless(ctx, in); err != nil {
		return Status{}, m.inner.FailAlone(in.call(m), err)
	}
	m.tally.Add(in.kind, in.buf.Bytes())
	left := m.sendShort(out) // then the receive is posted while the message is on its way
	b := m.post(in, nil)     // a request would be garbage at the end
	if left {
		m.tally.Add(out.kind, out.buf.Bytes())
	} else {
		m.mu.Unlock()
		if _, err := m.block(ctx, out, nil); err != nil {
			b.Cancel()
			return Status{}, err
		}
		m.mu.Lock()
	}
	st, err := m.finish(ctx, in, b)
	if err != nil {
		return st, m.inner.FailAlone(in.call(m), err)
	}
	return st, nil
}

// blockObserved is block for a call that is not quiet.
func (m *Mailbox) blockObserved(ctx context.Context, a args, alloc func(bytes int) comm.Buffer) (st Status, err error) {
	call := a.call(m)
	a.what = call.Fingerprint().What >> 16
	err = m.inner.Alone(call, func() (err error) {
		st, err = m.complete(ctx, &a, nil, alloc)
		return err
	})
	return st, err
}

// complete makes a call that returns when it has ended, and counts it if there is a tally.
func (m *Mailbox) complete(ctx context.Context, a *args, tally *comm.Tally, alloc func(bytes int) comm.Buffer) (Status, error) {
	if err := m.enterUnless(ctx, a); err != nil {
		return Status{}, err
	}
	if tally != nil {
		tally.Add(a.kind, a.buf.Bytes())
	}
	if a.kind == comm.TaggedSendKind && m.sendShort(a) {
		m.mu.Unlock()
		return Status{}, nil
	}
	return m.finish(ctx, a, m.post(a, alloc))
}

// enterUnless is enter, or ends the communicator if ctx is over.
func (m *Mailbox) enterUnless(ctx context.Context, a *args) error {
	if cause := backend.Cancelled(ctx); cause != nil {
		m.comm.Abort(cause)
		return cause
	}
	return m.enter(a)
}

// post begins a call that finish ends. The lock is held.
func (m *Mailbox) post(a *args, alloc func(bytes int) comm.Buffer) *blockingCall {
	b := m.spareCall()
	b.fill(a)
	if alloc != nil {
		b.rarely().alloc = alloc
	}
	b.begin()
	return b
}

// finishPolls is how many rings finish looks at before it gives the lock back: for about a microsecond.
const finishPolls = 512

// finish returns when b, which was posted as a says, has ended. The lock is held, and given back.
func (m *Mailbox) finish(ctx context.Context, a *args, b *blockingCall) (Status, error) {
	if !b.ended() {
		m.progressFor(&b.Request)
	}
	if m.rings != nil { // a short answer is likely to come in less time than giving the lock back and taking it again
		for left := finishPolls / len(m.ins); left > 0 && !b.ended(); left-- {
			if m.rings.waits(m.me) {
				m.progressFor(&b.Request)
			}
		}
	}
	if b.ended() && b.err() == nil {
		st := m.spare(b)
		m.mu.Unlock()
		return st, nil
	}
	m.mu.Unlock()
	if !b.ended() {
		a.describe(&b.call)
		if err := m.backend.Await(ctx, &b.call, b.on); err != nil { // a transfer may still use b
			m.broke(err)
			return b.status(), err
		}
	}
	if err := b.err(); err != nil {
		m.settle()
		return b.status(), err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.spare(b), nil
}

// spareCall returns a call that spare has kept, or a new one. The lock is held.
func (m *Mailbox) spareCall() *blockingCall {
	n := len(m.spares)
	if n == 0 {
		b := &blockingCall{Request: Request{m: m}}
		b.on, b.call.Untaken = b.look, func() string { return m.untaken(b.kind, int(b.peer)) }
		return b
	}
	b := m.spares[n-1]
	m.spares = m.spares[:n-1]
	return b
}

// spare keeps a call that is over for another, and returns its status. The lock is held.
func (m *Mailbox) spare(b *blockingCall) Status {
	st := b.status()
	b.buf, b.rare, b.source, b.taken, b.got = comm.Buffer{}, nil, 0, 0, 0
	b.call.Src, b.call.Dst = comm.Buffer{}, comm.Buffer{}
	release.Store(&b.over, 0)
	m.spares = append(m.spares, b)
	return st
}
