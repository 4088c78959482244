package main

import (
	"context"
	"errors"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/message"
)

// burstLength is how many messages are under way at once in "burst", burstBytes the longest of them.
const (
	burstLength = 64
	burstBytes  = 4 << 10
)

// messages returns the messages between ranks 0 and 1, 2 and 3, …; a last rank without a partner
// sends none. "ping_pong" is a message there and one back, "one_way" a message and an answer of one
// element, "both_ways" one each way at once, "burst" 64 messages under way and an answer. It returns
// none if the ranks have no mailbox.
func messages(ctx context.Context, c *comm.Comm) ([]benchmark, error) {
	m, err := message.New(ctx, c)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	first, peer := c.Rank()%2 == 0, c.Rank()^1
	// passOn has the first of a pair send there and then receive back; the other receives there first.
	passOn := func(ctx context.Context, out, in []float32) error {
		if first {
			if err := message.Send(ctx, m, out, peer, 0); err != nil {
				return err
			}
			_, err := message.Recv(ctx, m, in, peer, 0)
			return err
		}
		if _, err := message.Recv(ctx, m, in, peer, 0); err != nil {
			return err
		}
		return message.Send(ctx, m, out, peer, 0)
	}
	var requests [burstLength]*message.Request
	into := make([]float32, burstLength*burstBytes/4)
	all := []benchmark{
		{"ping_pong", 0, true, func(ctx context.Context, _ *comm.Comm, a, b []float32) error { return passOn(ctx, a, b[:len(a)]) }},
		{"one_way", 0, true, func(ctx context.Context, _ *comm.Comm, a, b []float32) error {
			if first {
				return passOn(ctx, a, b[:1])
			}
			return passOn(ctx, a[:1], b[:len(a)])
		}},
		{"both_ways", 0, true, func(ctx context.Context, _ *comm.Comm, a, b []float32) error {
			_, err := message.SendRecv(ctx, m, b[:len(a)], peer, 0, a, peer, 0)
			return err
		}},
		{"burst", burstBytes, true, func(ctx context.Context, _ *comm.Comm, a, b []float32) error {
			for i := range requests {
				if first {
					requests[i] = message.ISend(m, a, peer, 0)
				} else {
					requests[i] = message.IRecv(m, into[i*len(a):(i+1)*len(a)], peer, 0)
				}
			}
			if err := message.WaitAll(ctx, requests[:]...); err != nil {
				return err
			}
			if first {
				_, err := message.Recv(ctx, m, b[:1], peer, 1)
				return err
			}
			return message.Send(ctx, m, a[:1], peer, 1)
		}},
	}
	if peer >= c.Size() {
		for i := range all {
			all[i].run = func(context.Context, *comm.Comm, []float32, []float32) error { return nil }
		}
	}
	return all, nil
}
