package commtest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/comm/message"
	"github.com/gorun-spmd/gorun/comm/window"
)

// The error of a call that waits for a rank which has returned says what to do about calls of its kind.
func TestTheRemedyWhenARankHasEnded(t *testing.T) {
	const collective, ofMessages = "before it made this call; make the same calls on all ranks", "give each message a send and a receive"
	x := func() []int64 { return make([]int64, 1) }
	for name, wait := range map[string]struct {
		on     func(ctx context.Context, world *comm.Comm, m *message.Mailbox, lock *window.Mutex) error
		remedy string
	}{
		"Barrier": {func(ctx context.Context, world *comm.Comm, _ *message.Mailbox, _ *window.Mutex) error {
			return comm.Barrier(ctx, world)
		}, collective},
		"Recv": {func(ctx context.Context, world *comm.Comm, _ *message.Mailbox, _ *window.Mutex) error {
			return comm.Recv(ctx, world, x(), 1)
		}, ofMessages},
		"message.Recv": {func(ctx context.Context, _ *comm.Comm, m *message.Mailbox, _ *window.Mutex) error {
			_, err := message.Recv(ctx, m, x(), message.AnySource, 3)
			return err
		}, ofMessages},
		"Wait": {func(ctx context.Context, _ *comm.Comm, m *message.Mailbox, _ *window.Mutex) error {
			return message.WaitAll(ctx, message.IRecv(m, x(), 1, 3))
		}, ofMessages},
		"Lock": {func(ctx context.Context, _ *comm.Comm, _ *message.Mailbox, lock *window.Mutex) error {
			return lock.Lock(ctx)
		}, "Unlock what a rank has locked before it returns"},
	} {
		errs := commtest.Ranks(t.Context(), 2, func(ctx context.Context, world *comm.Comm) error {
			m, err := message.New(ctx, world)
			if err != nil {
				return err
			}
			lock, err := window.NewMutex(ctx, world)
			if err != nil {
				return err
			}
			if world.Rank() == 1 {
				err = lock.Lock(ctx)
			}
			if err == nil {
				err = comm.Barrier(ctx, world)
			}
			if err != nil || world.Rank() == 1 {
				return err
			}
			return wait.on(ctx, world, m, lock)
		})
		got := fmt.Sprint(errs[0])
		if !strings.Contains(got, "rank 1 ended, without an error, ") || !strings.Contains(got, wait.remedy) {
			t.Errorf("%s: got %s, want that rank 1 ended and %q", name, got, wait.remedy)
		}
	}
}
