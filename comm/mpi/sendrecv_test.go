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

// sendRecv is the suite's cases of SendRecv, with calls compared in each way and in pieces.
func sendRecv(ctx context.Context, r *Rank) error {
	for _, v := range []struct {
		name   string
		change func(*Rank)
	}{
		{"plain", func(*Rank) {}},
		{"debug", func(r *Rank) { r.checks = checkAll }},
		{"unchecked", func(r *Rank) { r.checks = checkNone }},
		{"divided", func(r *Rank) { r.most = 10_000 }},
	} {
		world, err := variant(r, v.change)
		if err != nil {
			return err
		}
		for _, c := range commtest.Messages() {
			if v.name == "unchecked" && strings.HasSuffix(c.Name, "disagreement") {
				continue // MPI itself allows a message shorter than its buffer
			}
			began := time.Now()
			if err := c.Run(ctx, world); err != nil {
				return fmt.Errorf("%s, %s: %w", v.name, c.Name, err)
			}
			if r.Rank() == 0 && os.Getenv("MPI_TEST_TIMES") != "" {
				fmt.Println(v.name, c.Name, time.Since(began))
			}
		}
	}
	return errors.Join(besideBarrier(ctx, r, checkNeighbours), besideBarrier(ctx, r, checkAll))
}

// besideBarrier: rank 0 is in a SendRecv with rank 1, which is in a Barrier.
func besideBarrier(ctx context.Context, r *Rank, checks checking) error {
	if r.Size() == 1 {
		return nil
	}
	world, err := variant(r, func(v *Rank) { v.checks = checks })
	if err != nil {
		return err
	}
	if r.Rank() == 0 {
		err = comm.SendRecv(ctx, world, make([]int, 9000), 1, make([]int, 9000), 1)
	} else {
		err = comm.Barrier(ctx, world)
	}
	for _, want := range []string{"for SendRecv at", "and waits for rank 1", "rank 1 called Barrier", "none of these calls can end"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("a SendRecv and a Barrier, compared %v: got %v, want %q", checks, err, want)
		}
	}
	return nil
}

// endsBeforeSendRecv: the last rank ends while the others exchange around the ring.
func endsBeforeSendRecv(ctx context.Context, r *Rank) error {
	world, n, me := comm.NewWorld(r), r.Size(), r.Rank()
	for range n + 3 { // more than ranks that are far from the last one may go on without it
		err := comm.SendRecv(ctx, world, make([]int32, 90_000), (me+n-1)%n, make([]int32, 90_000), (me+1)%n)
		if me == n-1 {
			return err
		}
		if err != nil {
			if !errors.Is(err, comm.ErrEnded) || !strings.Contains(err.Error(), fmt.Sprintf("rank %d ended", n-1)) {
				return fmt.Errorf("got %v, want that rank %d ended", err, n-1)
			}
			return errors.Join(errExpected, err)
		}
	}
	return errors.New("no error")
}

func TestSendRecv(t *testing.T) {
	eachLauncher(t, func(t *testing.T, l launcher) {
		for _, n := range l.sizes(1, 2, 3) {
			l.pass(t, n, "sendrecv")
		}
		l.pass(t, slices.Max(l.sizes(2, 3)), "sendrecv end")
	})
}
