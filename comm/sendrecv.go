package comm

import (
	"context"
	"errors"
	"fmt"

	"github.com/gorun-spmd/gorun/comm/backend"
)

// SendRecv sends src to rank to and fills dst with what rank from sends, at once: ranks that
// all call it do not wait for each other, whatever the lengths and wherever they send. On the
// other side either half may be met by a SendRecv, a Send or a Recv. len(dst) must be the length that
// rank from sends. dst and src must not overlap. from and to may both be this rank:
// then dst becomes a copy of src.
//
// Every backend carries it out but gompi and empi: over these its error is errors.ErrUnsupported,
// on all ranks before anything is sent, and the communicator can be used further.
func SendRecv[T any](ctx context.Context, c *Comm, dst []T, from int, src []T, to int) error {
	return c.sendRecv(ctx, Call{Kind: SendKind, Root: to, Src: Of(src), Cause: sendRecv},
		Call{Kind: RecvKind, Root: from, Dst: Of(dst), Cause: sendRecv})
}

// sendRecv is the cause of the two calls of a SendRecv.
const sendRecv = "SendRecv"

// sendRecv carries out a Send and a Recv at once. Statistics and recordings have both.
func (c *Comm) sendRecv(ctx context.Context, send, recv Call) error {
	if c.none() {
		return noComm(&send)
	}
	c.drain()
	c.account.mu.Lock()
	defer c.account.mu.Unlock()
	c.call, c.second = send, recv
	one, two := &c.call, &c.second
	alone := send.Root == c.rank && recv.Root == c.rank
	b, ok := c.backend.(backend.SendRecvBackend)
	if !ok && !alone && c.size > 1 {
		return c.failAlone(one, fmt.Errorf("%s cannot send and receive at once; "+
			"use AllToAllV, with counts of 0 for ranks that are no neighbours: %w",
			c.Internals().Library(), errors.ErrUnsupported))
	}
	c.seq += 2
	if err := c.refuse(ctx, one, c.checkSendRecv(one, two, alone)); err != nil {
		return err
	}
	c.account.add(one.Kind, one.Cause, one.Bytes())
	c.account.add(two.Kind, two.Cause, two.Bytes())
	do := func() error {
		if alone {
			copy(two.Dst.Data(), one.Src.Data())
			return nil
		}
		return b.SendRecv(ctx, one, two)
	}
	if r := c.shared.recorder.Load(); r != nil {
		inner := do
		do = func() error {
			return r.observe(c, one, func() error { return r.observe(c, two, inner) })
		}
	}
	if err := do(); err != nil {
		return c.fail(one, err)
	}
	return nil
}

// checkSendRecv returns what is wrong with a SendRecv; alone says that both its halves are this rank's.
func (c *Comm) checkSendRecv(send, recv *Call, alone bool) error {
	if send.Src.Overlaps(recv.Dst) {
		return errors.New("dst and src overlap; give each memory of its own")
	}
	if alone { // Problem would refuse a message to this rank itself
		if err := send.CheckTypes(); err != nil {
			return err
		}
	} else {
		_, ofSend := send.Problem(c.rank, c.size)
		_, ofRecv := recv.Problem(c.rank, c.size)
		if err := errors.Join(ofSend, ofRecv); err != nil {
			return err
		}
	}
	if h, ok := c.carrier().(backend.DeviceHolder); ok && (h.Holds(send.Src.Ptr) || h.Holds(recv.Dst.Ptr)) {
		return errors.New("a buffer lies in the memory of a device; copy it to the host first")
	}
	if alone && send.Src.Count != recv.Dst.Count {
		return fmt.Errorf("len(dst) is %d and len(src) %d, from and to this rank; make them equal",
			recv.Dst.Count/recv.Width(), send.Src.Count/send.Width())
	}
	return nil
}
