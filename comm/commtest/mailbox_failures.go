package commtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/message"
)

// mailboxMisuse: errors name the call and the remedy, and the mailbox can be used further.
func mailboxMisuse(ctx context.Context, world *comm.Comm) error {
	return mailbox(ctx, world, func(m *message.Mailbox) error {
		n := world.Size()
		x := make([]int64, 3)
		receive := func(from, tag int) error {
			_, err := message.Recv(ctx, m, x, from, tag)
			return err
		}
		_, waited := message.IRecv(m, x, n, 0).Wait(ctx)
		_, probed := message.Probe(ctx, m, 0, -2)
		type pointed struct{ P *int }
		for _, wrong := range []struct {
			err   error
			parts []string
		}{
			{message.Send(ctx, m, x, n, 7), []string{fmt.Sprintf("message.Send int64[3] to rank %d, tag 7 at commtest/mailbox_failures.go:", n),
				fmt.Sprintf("give one of 0 to %d", n-1)}},
			{message.Send(ctx, m, x, message.AnySource, 7), []string{"there is no rank -1"}},
			{message.Send(ctx, m, x, 0, message.AnyTag), []string{"there is no tag -1; give one of 0 to"}},
			{receive(-2, 0), []string{"there is no rank -2"}},
			{waited, []string{"message.Recv int64[3] from rank", "there is no rank"}},
			{probed, []string{"message.Probe from rank 0, tag -2", "there is no tag -2"}},
			{message.Send(ctx, m, make([]pointed, 1), 0, 1), []string{"holds a pointer"}},
		} {
			if err := want(wrong.err, nil, wrong.parts...); err != nil {
				return err
			}
		}
		return nil
	})
}

// present returns on rank 0 when all ranks have made the mailbox, so that none is still in message.New when
// rank 0 breaks the communicator.
func present(ctx context.Context, m *message.Mailbox, n, me int) error {
	if me > 0 {
		return message.Send(ctx, m, []int32{}, 0, 0)
	}
	for r := 1; r < n; r++ {
		if _, err := message.Recv(ctx, m, []int32{}, r, 0); err != nil {
			return err
		}
	}
	return nil
}

// mailboxDisagrees: the receive of rank 0 is too short, or of another type.
func mailboxDisagrees(ctx context.Context, world *comm.Comm) error {
	n, me := world.Size(), world.Rank()
	for _, count := range []int{3, 9000} {
		for _, short := range []bool{true, false} {
			if err := breaking(ctx, world, func(c *comm.Comm) error {
				m, err := message.New(ctx, c)
				if err != nil {
					return err
				}
				if err := present(ctx, m, n, me); err != nil {
					return err
				}
				s := message.ISend(m, make([]int32, count), (me+1)%n, 2)
				if me > 0 {
					return want(comm.Barrier(ctx, c), comm.ErrMismatch, "what has come is int32")
				}
				said := fmt.Sprintf("int32[%d] from rank %d, tag 2", count, world.WorldRank((me+n-1)%n))
				if short {
					_, err = message.Recv(ctx, m, make([]int32, count-1), (me+n-1)%n, 2)
					said = fmt.Sprintf("%s, and the receive has room for %d elements", said, count-1)
				} else {
					_, err = message.Recv(ctx, m, make([]float64, count), (me+n-1)%n, 2)
					said = fmt.Sprintf("%s, and this receive is of float64[%d]", said, count)
				}
				if err := want(err, comm.ErrMismatch, "at commtest/mailbox_failures.go:", said); err != nil {
					return err
				}
				_, _ = s.Wait(ctx) // it may have ended well before
				return want(message.Send(ctx, m, []int32{1}, me, 1), nil)
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// messageInVain: who waits for a message learns that its context is done, or that another rank has
// aborted, in each kind of call.
func messageInVain(ctx context.Context, world *comm.Comm) error {
	n, me := world.Size(), world.Rank()
	x := make([]int32, 9000)
	for k, call := range []func(ctx context.Context, m *message.Mailbox) error{
		func(ctx context.Context, m *message.Mailbox) error {
			_, err := message.Recv(ctx, m, x, (me+1)%n, 3)
			return err
		},
		func(ctx context.Context, m *message.Mailbox) error {
			_, err := message.Recv(ctx, m, x, message.AnySource, 3)
			return err
		},
		func(ctx context.Context, m *message.Mailbox) error { return message.Send(ctx, m, x, (me+1)%n, 3) },
		func(ctx context.Context, m *message.Mailbox) error {
			_, err := message.Probe(ctx, m, message.AnySource, message.AnyTag)
			return err
		},
		func(ctx context.Context, m *message.Mailbox) error {
			_, err := message.IRecv(m, x, (me+1)%n, 3).Wait(ctx)
			return err
		},
		func(ctx context.Context, m *message.Mailbox) error {
			_, _, err := message.WaitAny(ctx, message.IRecv(m, x, message.AnySource, 3), message.ISend(m, x, (me+1)%n, 4))
			return err
		},
		func(ctx context.Context, m *message.Mailbox) error {
			r := message.IRecv(m, x, (me+1)%n, 3)
			select {
			case <-r.Done():
				return message.WaitAll(ctx, r)
			case <-ctx.Done():
				return message.Send(ctx, m, x, (me+1)%n, 4)
			}
		},
	} {
		for _, late := range []bool{true, false} {
			if err := breaking(ctx, world, func(c *comm.Comm) error {
				m, err := message.New(ctx, c)
				if err != nil {
					return err
				}
				short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
				defer cancel()
				if !late {
					short = ctx
					if err := present(ctx, m, n, me); err != nil {
						return err
					}
					if me == 0 {
						time.AfterFunc(5*time.Millisecond, func() { c.Abort(errTest) })
					}
				}
				err = call(short, m)
				switch {
				case !late:
					return ran(want(err, comm.ErrAborted, "message.", "at commtest/mailbox_failures.go:", errTest.Error()), "call %d", k)
				case errors.Is(err, comm.ErrAborted): // another rank's time was over before
					return nil
				}
				return ran(want(err, context.DeadlineExceeded, "message."), "call %d", k)
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// messagesCounted: Stats and recordings show messages.
func messagesCounted(ctx context.Context, world *comm.Comm) error {
	return mailbox(ctx, world, func(m *message.Mailbox) error {
		n, me := world.Size(), world.Rank()
		before := world.Stats()
		r := world.Record()
		_, err := message.SendRecv(ctx, m, make([]int32, 5), (me+n-1)%n, 1, make([]int32, 5), (me+1)%n, 1)
		events := r.Stop()
		if err != nil {
			return err
		}
		after := world.Stats()
		var said []string
		for _, e := range events {
			said = append(said, fmt.Sprintf("%v %d %s", e.Kind, e.Bytes, e.Elem))
			if e.Peer < 0 || !strings.HasPrefix(e.Site(), "commtest/mailbox_failures.go:") {
				return fmt.Errorf("%v has peer %d and site %s", e.Kind, e.Peer, e.Site())
			}
			if k := e.Kind; after.Kinds[k].Calls-before.Kinds[k].Calls != 1 || after.Kinds[k].Bytes-before.Kinds[k].Bytes != 20 {
				return fmt.Errorf("after a SendRecv of 20 bytes Stats has %v, before %v", after.Kinds[k], before.Kinds[k])
			}
		}
		if want := []string{"message.Recv 20 int32", "message.Send 20 int32"}; !slices.Equal(said, want) {
			return fmt.Errorf("recorded %q, want %q", said, want)
		}
		return nil
	})
}

// mailboxClosed: Close refuses what has not ended, tells of what was not received, and calls after it fail.
func mailboxClosed(ctx context.Context, world *comm.Comm) error {
	n, me := world.Size(), world.Rank()
	m, err := message.New(ctx, world)
	if err != nil {
		return err
	}
	x := make([]int32, 9)
	r := message.IRecv(m, x, (me+1)%n, 3)
	if err := want(m.Close(ctx), nil, "message Close at commtest/mailbox_failures.go:", "the mailbox has 1 request under way"); err != nil {
		return err
	}
	r.Cancel()
	if err := message.Send(ctx, m, x, (me+1)%n, 4); err != nil {
		return err
	}
	says := fmt.Sprintf("1 message was not received, int32[9] from rank %d, tag 4; Recv it", (me+n-1)%n)
	if err := want(m.Close(ctx), nil, says); err != nil {
		return err
	}
	if err := want(message.Send(ctx, m, x, 0, 0), nil, "the mailbox is closed"); err != nil {
		return err
	}
	return want(m.Close(ctx), nil, "the mailbox is closed")
}

// endBeforeMessage: the last rank returns, without an error, while the others wait for a message of it.
func endBeforeMessage(t *testing.T, run Harness, n int) {
	if n == 1 {
		return
	}
	for r, err := range run(t.Context(), n, func(ctx context.Context, c *comm.Comm) error {
		m, err := message.New(ctx, c)
		if err != nil {
			return err
		}
		last := n - 1
		x := make([]int32, 9)
		if c.Rank() == last { // what it sent before counts
			for r := range last {
				err = errors.Join(err, message.Send(ctx, m, x, r, 0))
			}
			return err
		}
		if _, err := message.Recv(ctx, m, x, last, 0); err != nil {
			return err
		}
		r := message.IRecv(m, x, last, 0)
		if c.Rank()%2 == 0 {
			<-r.Done()
		}
		_, err = r.Wait(ctx)
		return err
	}) {
		switch {
		case r == n-1 && err != nil:
			t.Errorf("rank %d of %d, which ended: %v", r, n, err)
		case r < n-1 && (!errors.Is(err, comm.ErrEnded) || !strings.Contains(err.Error(), fmt.Sprintf("rank %d ended", n-1))):
			t.Errorf("rank %d of %d: got %v, want that rank %d ended", r, n, err, n-1)
		}
	}
}

// RefusesMailbox checks that a backend that carries no messages with tags says so on all ranks. A group of one
// rank needs no backend.
func RefusesMailbox(ctx context.Context, world *comm.Comm) error {
	if _, err := message.New(ctx, world); world.Size() > 1 && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("a mailbox: got %v, want errors.ErrUnsupported", err)
	}
	return nil
}

// LeaveMailboxOpen is a task of a test: it makes a mailbox, uses it and ends while that still looks for messages.
func LeaveMailboxOpen(ctx context.Context, world *comm.Comm) error {
	m, err := message.New(ctx, world)
	if err != nil {
		return err
	}
	in := message.IRecv(m, make([]int, 1), message.AnySource, 0)
	out := message.ISend(m, []int{world.Rank()}, (world.Rank()+1)%world.Size(), 0)
	time.Sleep(5 * time.Millisecond) // the requests proceed without a call
	return message.WaitAll(ctx, in, out)
}
