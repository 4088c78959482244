package message

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/object"
)

// What a receive or a probe takes in place of a rank or a tag, MPI_ANY_SOURCE and MPI_ANY_TAG.
const (
	AnySource = comm.AnyRank
	AnyTag    = comm.AnyTag
)

// MaxTag is the largest tag; the smallest is 0.
const MaxTag = 1<<31 - 1

// A Status says what a receive got, or a probe found.
type Status struct {
	Source int // the rank that sent it
	Tag    int
	Count  int // elements
}

func widthOf[T any]() int { return int(unsafe.Sizeof(*new(T))) }

// setArgs sets a to what a call with a buffer says. It returns no result, since a copy of what was just stored would wait
// for the stores.
func setArgs[T any](a *args, kind comm.Kind, buf []T, peer, tag int) {
	a.kind, a.width, a.peer, a.tag = kind, widthOf[T](), peer, tag
	a.buf = comm.Of(buf)
}

// Send sends buf to rank to. It returns when buf may be changed: a short message has then left, a long one was
// received. The package documentation says what is short.
func Send[T any](ctx context.Context, m *Mailbox, buf []T, to, tag int) error {
	var a args
	setArgs(&a, comm.TaggedSendKind, buf, to, tag)
	_, err := m.block(ctx, &a, nil)
	return err
}

// SSend is Send that returns when the message was received, however short it is: MPI's synchronous send.
func SSend[T any](ctx context.Context, m *Mailbox, buf []T, to, tag int) error {
	a := args{sync: true}
	setArgs(&a, comm.TaggedSendKind, buf, to, tag)
	_, err := m.block(ctx, &a, nil)
	return err
}

// Recv receives a message from rank from with a tag into the start of buf. from may be AnySource, and
// tag AnyTag. A message of more elements than buf has, or of others, ends the communicator.
func Recv[T any](ctx context.Context, m *Mailbox, buf []T, from, tag int) (Status, error) {
	var a args
	setArgs(&a, comm.TaggedRecvKind, buf, from, tag)
	return m.block(ctx, &a, nil)
}

// RecvSlice receives a message whose length this rank need not know.
func RecvSlice[T any](ctx context.Context, m *Mailbox, from, tag int) ([]T, Status, error) {
	var got []T
	var a args
	setArgs(&a, comm.TaggedRecvKind, got, from, tag)
	st, err := m.block(ctx, &a, func(bytes int) comm.Buffer {
		got = make([]T, bytes/widthOf[T]())
		return comm.Of(got)
	})
	return got, st, err
}

// Probe returns when there is a message that a receive from rank from with a tag would take, and
// what it is. The message stays.
func Probe(ctx context.Context, m *Mailbox, from, tag int) (Status, error) {
	return m.block(ctx, &args{kind: comm.TaggedProbeKind, peer: from, tag: tag}, nil)
}

// TryProbe is Probe that does not wait: ok is false if there is no such message.
func TryProbe(m *Mailbox, from, tag int) (st Status, ok bool, err error) {
	a := args{kind: comm.TaggedProbeKind, peer: from, tag: tag}
	err = m.inner.Alone(a.call(m), func() error {
		if err := m.check(&a); err != nil {
			return err
		}
		if err := m.backend.Broken(); err != nil {
			return err
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.closed {
			return errClosed
		}
		m.progress()
		if e := m.find(from, tag, false); e != nil {
			st, ok = e.status(), true
		}
		return m.err
	})
	return st, ok, err
}

// ISend begins to send buf to rank to. Nobody may write to buf until the request has ended.
func ISend[T any](m *Mailbox, buf []T, to, tag int) *Request {
	var a args
	setArgs(&a, comm.TaggedSendKind, buf, to, tag)
	return m.start(&a)
}

// ISSend is ISend whose request ends when the message was received, however short it is.
func ISSend[T any](m *Mailbox, buf []T, to, tag int) *Request {
	a := args{sync: true}
	setArgs(&a, comm.TaggedSendKind, buf, to, tag)
	return m.start(&a)
}

// IRecv begins to receive a message into the start of buf, as Recv does. Receives that would
// take the same message get them in the order in which they were begun.
func IRecv[T any](m *Mailbox, buf []T, from, tag int) *Request {
	var a args
	setArgs(&a, comm.TaggedRecvKind, buf, from, tag)
	return m.start(&a)
}

// start begins a send or a receive.
func (m *Mailbox) start(a *args) (r *Request) {
	var err error
	if m.inner.Quiet(a.buf) {
		a.what = uint64(a.buf.DType)
		if r, err = m.begin(a, m.tally); err == nil {
			return r
		}
	}
	return m.startObserved(*a, err)
}

// startObserved is start for a call that is not quiet, and for one that has failed.
func (m *Mailbox) startObserved(a args, err error) (r *Request) {
	call := a.call(m)
	if err != nil {
		return m.failed(&a, m.inner.FailAlone(call, err))
	}
	a.what = call.Fingerprint().What >> 16
	err = m.inner.Alone(call, func() (err error) {
		r, err = m.begin(&a, nil)
		return err
	})
	if err != nil {
		return m.failed(&a, err)
	}
	return r
}

// begin begins a request, and counts it if there is a tally. All sends that are over at once share one request.
func (m *Mailbox) begin(a *args, tally *comm.Tally) (r *Request, err error) {
	if err := m.enter(a); err != nil {
		return nil, err
	}
	if tally != nil {
		tally.Add(a.kind, a.buf.Bytes())
	}
	if r = &m.sent; a.kind == comm.TaggedRecvKind || !m.sendShort(a) {
		r = m.newRequest(a)
		r.begin()
	}
	m.mu.Unlock()
	return r, nil
}

// SendRecv sends src to rank to and receives into the start of dst from rank from, at once: ranks that all
// call it do not wait for each other. src and dst must not overlap.
func SendRecv[R, S any](ctx context.Context, m *Mailbox, dst []R, from, recvTag int, src []S, to, sendTag int) (Status, error) {
	var in, out args
	setArgs(&in, comm.TaggedRecvKind, dst, from, recvTag)
	setArgs(&out, comm.TaggedSendKind, src, to, sendTag)
	return m.sendRecv(ctx, &in, &out)
}

// SendObject sends a Go value of any type, as package encoding/gob writes it: for what is small and irregular.
func SendObject[T any](ctx context.Context, m *Mailbox, v T, to, tag int) error {
	data, err := object.Encode(v)
	if err != nil {
		return m.fault("SendObject", fmt.Errorf("%w; give a value that encoding/gob takes", err))
	}
	return Send(ctx, m, asCoded(data), to, tag)
}

// RecvObject receives what SendObject has sent.
func RecvObject[T any](ctx context.Context, m *Mailbox, from, tag int) (v T, st Status, err error) {
	data, st, err := RecvSlice[coded](ctx, m, from, tag)
	if err != nil {
		return v, st, err
	}
	st.Count = 1
	if v, err = object.Decode[T](asBytes(data)); err != nil {
		return v, st, m.fault("RecvObject", fmt.Errorf("the value of rank %d, tag %d: %w; receive it as the type that was sent",
			m.comm.WorldRank(st.Source), st.Tag, err))
	}
	return v, st, nil
}
