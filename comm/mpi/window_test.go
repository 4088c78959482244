//go:build linux && !nolibs

package mpi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
)

// few are the cases that many ranks run: on few cores a library that spins takes milliseconds for
// each call.
var few = []string{"put and get of structs", "int64", "float32", "uint8", "fetch", "swap", "locks", "several at once",
	"counter and queue", "misuse", "a lock is waited for in vain"}

// windows is the suite of package comm/window, also with Puts divided into small ones.
func windows(ctx context.Context, r *Rank) error {
	for _, most := range []int{maxBytes, 1000} {
		if most < maxBytes && r.Size() > 2 {
			break
		}
		world, err := variant(r, func(r *Rank) { r.most = most })
		if err != nil {
			return err
		}
		for _, c := range commtest.Windows() {
			if most < maxBytes && c.Name == "window: much" {
				continue // thousands of calls
			}
			if r.Size() > 2 && !slices.Contains(few, strings.TrimPrefix(c.Name, "window: ")) {
				continue
			}
			began := time.Now()
			if err := c.Run(ctx, world); err != nil {
				return fmt.Errorf("at most %d bytes, %s: %w", most, c.Name, err)
			}
			if r.Rank() == 0 && os.Getenv("MPI_TEST_TIMES") != "" {
				fmt.Println(c.Name, time.Since(began))
			}
		}
	}
	return nil
}

// messages is the suite of package comm/message.
func messages(ctx context.Context, r *Rank) error {
	world := comm.NewWorld(r)
	for _, c := range commtest.Mailboxes() {
		began := time.Now()
		if err := c.Run(ctx, world); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		if r.Rank() == 0 && os.Getenv("MPI_TEST_TIMES") != "" {
			fmt.Println(c.Name, time.Since(began))
		}
	}
	return nil
}

func TestMessages(t *testing.T) {
	eachLauncher(t, func(t *testing.T, l launcher) {
		for _, n := range l.sizes(1, 2, 3, 4, 7) {
			if n > 3 && l.name != "openmpi" {
				break // the longest suite: seven ranks of one library take half a minute
			}
			l.pass(t, n, "messages")
		}
		l.pass(t, 2, "mailbox open")
	})
}

func mailboxLeftOpen(ctx context.Context, r *Rank) error {
	return commtest.LeaveMailboxOpen(ctx, comm.NewWorld(r))
}

func windowLeftOpen(ctx context.Context, r *Rank) error {
	return commtest.LeaveWindowOpen(ctx, comm.NewWorld(r))
}

// endsWithALock: the last rank ends without an error, with a lock that the others wait for.
func endsWithALock(ctx context.Context, r *Rank) error {
	err, last := commtest.EndWithLock(ctx, comm.NewWorld(r)), r.Size()-1
	if r.Rank() == last {
		return err
	}
	if !errors.Is(err, comm.ErrEnded) || !strings.Contains(err.Error(), fmt.Sprintf("rank %d ended", last)) {
		return fmt.Errorf("got %v, want that rank %d ended", err, last)
	}
	return errExpected
}

func TestWindows(t *testing.T) {
	eachLauncher(t, func(t *testing.T, l launcher) {
		for _, n := range l.sizes(1, 2, 3, 4, 7) {
			l.pass(t, n, "windows")
		}
		l.pass(t, 2, "window open")
		out, err := l.run(t, 3, "window end", "MPI_TEST_SIZE=3")
		if strings.Count(out, "all right") != 3 && !strings.Contains(out, "given up before") {
			t.Errorf("a rank ends with a lock: %v, output:\n%s", err, out)
		}
	})
}
