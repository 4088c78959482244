package commtest

import (
	"context"
	"errors"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/message"
)

// ReceiveFirst has two ranks receive a message from each other, which is a hang.
func ReceiveFirst(ctx context.Context, world *comm.Comm) error {
	m, err := message.New(ctx, world)
	if err != nil {
		return err
	}
	_, err = message.Recv(ctx, m, make([]int, 1), 1-world.Rank(), 0)
	return err
}

// ReceiveAnother has ranks send a message to the next one, and receive one of another tag from any, which is a hang.
func ReceiveAnother(ctx context.Context, world *comm.Comm) error {
	m, err := message.New(ctx, world)
	if err == nil {
		err = message.Send(ctx, m, []int64{1}, (world.Rank()+1)%world.Size(), 5)
	}
	if err != nil {
		return err
	}
	_, err = message.Recv(ctx, m, make([]int64, 1), message.AnySource, 6)
	return err
}

// ReceiveAnotherTag has rank 1 receive a message of another tag than rank 0 has sent on a communicator of the first two ranks,
// which is a hang.
func ReceiveAnotherTag(ctx context.Context, world *comm.Comm) error {
	pair, err := world.Split(ctx, world.Rank()/2, world.Rank())
	if err != nil || world.Rank() > 1 {
		return err
	}
	m, err := message.New(ctx, pair)
	if err != nil {
		return err
	}
	if pair.Rank() == 0 {
		time.Sleep(50 * time.Millisecond) // rank 1 already waits
		if err := message.Send(ctx, m, []int64{1}, 1, 7); err != nil {
			return err
		}
		return m.Close(ctx)
	}
	_, err = message.Recv(ctx, m, make([]int64, 1), 0, 8)
	return err
}

// ReceiveOwn has each rank receive a message from itself, which is a hang of each alone.
func ReceiveOwn(ctx context.Context, world *comm.Comm) error {
	m, err := message.New(ctx, world)
	if err != nil {
		return err
	}
	_, err = message.Recv(ctx, m, make([]int64, 1), world.Rank(), 0)
	return err
}

// LongMessages has rank 1 wait for messages that take seconds, and rank 0 for its answer, which is none.
func LongMessages(ctx context.Context, world *comm.Comm) error {
	m, err := message.New(ctx, world)
	if err != nil {
		return err
	}
	var parts []*message.Request
	buf, answer := make([]byte, 100<<20), make([]int, 1)
	for range 60 {
		if world.Rank() == 0 {
			parts = append(parts, message.ISend(m, buf, 1, 0))
		} else {
			parts = append(parts, message.IRecv(m, buf, 0, 0))
		}
	}
	if world.Rank() == 0 {
		_, err = message.Recv(ctx, m, answer, 1, 1)
	} else if _, err = parts[len(parts)-1].Wait(ctx); err == nil {
		err = message.Send(ctx, m, answer, 0, 1)
	}
	return errors.Join(err, message.WaitAll(ctx, parts...), m.Close(ctx))
}
