package commtest

import (
	"context"
	"fmt"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/message"
	"github.com/gorun-spmd/gorun/internal/mem"
)

// hugeCount is more elements than an int32 counts.
const hugeCount = 1<<31 + 5

// Huge has call bring rank 0's buffer of more elements than an int32 counts to all ranks.
func Huge(c *comm.Comm, call func(buf []int8) error) error {
	buf := make([]int8, hugeCount)
	if c.Rank() == 0 {
		buf[0], buf[1<<30], buf[1<<31-1], buf[hugeCount-1] = 1, 2, 3, 4
	}
	if err := call(buf); err != nil {
		return err
	}
	if got := [4]int8{buf[0], buf[1<<30], buf[1<<31-1], buf[hugeCount-1]}; got != [4]int8{1, 2, 3, 4} {
		return fmt.Errorf("got %v", got)
	}
	return nil
}

// HugeMessage sends such a buffer as a message from rank 0 to rank 1.
func HugeMessage(ctx context.Context, c *comm.Comm) error {
	return mailbox(ctx, c, func(m *message.Mailbox) error {
		return Huge(c, func(buf []int8) error {
			if c.Rank() == 0 {
				return message.Send(ctx, m, buf, 1, 7)
			}
			st, err := message.Recv(ctx, m, buf, 0, 7)
			if err == nil && st.Count != hugeCount {
				err = fmt.Errorf("got %+v", st)
			}
			return err
		})
	})
}

// NeedHuge skips a test of huge buffers on two ranks in short mode, and where memory is short.
func NeedHuge(t *testing.T) {
	t.Helper()
	const needed = 7 << 30 // two ranks with 2 GiB each, and one on its way
	m, _ := mem.ReadMachine("")
	if free := min(m.Available, m.Limit); free < needed || testing.Short() {
		t.Skipf("takes time and %d GiB of memory; %d MiB are available", needed>>30, free>>20)
	}
}
