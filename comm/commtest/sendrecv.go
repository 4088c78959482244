package commtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
)

// Messages returns the cases of SendRecv, which not every backend has.
func Messages() []Case {
	return []Case{
		{"SendRecv around the ring", ring},
		{"SendRecv meets Send and Recv", meets},
		{"SendRecv in random schedules", schedules},
		{"SendRecv in recordings", recordedSendRecv},
		{"SendRecv: disagreement", sendRecvDisagrees},
		{"SendRecv: misuse", sendRecvMisuse},
		{"SendRecv: deadline", sendRecvDeadline},
	}
}

// letter is what a rank sends in a step.
func letter(dst []int32, from, step int) {
	for i := range dst {
		dst[i] = int32(i + from<<20 + step<<25)
	}
}

// isLetter compares what came with the model.
func isLetter(got []int32, from, step int) error {
	want := make([]int32, len(got))
	letter(want, from, step)
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("step %d, %d elements of rank %d: [%d] is %#x, want %#x", step, len(got), from, i, got[i], want[i])
		}
	}
	return nil
}

// ring: each rank sends to the one a number of places after it, and receives from the one as many before, at once.
func ring(ctx context.Context, c *comm.Comm) error {
	n, me := c.Size(), c.Rank()
	for w := range places {
		for _, count := range []int{0, 1, 8, 9, 2000, 150_000} {
			a := arena{c: c, where: w}
			src, dst, err := takeTwo[int32](&a, count)
			if err != nil {
				return err
			}
			for shift := range n { // 0: to itself
				letter(src, me, shift)
				from := (me + n - shift) % n
				if err := comm.SendRecv(ctx, c, dst, from, src, (me+shift)%n); err != nil {
					return err
				}
				if err := isLetter(dst, from, shift); err != nil {
					return fmt.Errorf("%v: %w", w, err)
				}
			}
			a.free()
		}
	}
	return nil
}

// meets: rank 0 alone calls SendRecv, the others pass on by Recv and Send.
func meets(ctx context.Context, c *comm.Comm) error {
	n, me := c.Size(), c.Rank()
	if n == 1 {
		return nil
	}
	for step, count := range []int{1, 9, 70_000} {
		x, y := make([]int32, count), make([]int32, count)
		before, next := (me+n-1)%n, (me+1)%n
		if me == 0 {
			letter(x, 0, step)
			if err := comm.SendRecv(ctx, c, y, before, x, next); err != nil {
				return err
			}
			if err := isLetter(y, 0, step); err != nil {
				return err
			}
			continue
		}
		if err := comm.Recv(ctx, c, x, before); err != nil {
			return err
		}
		if err := comm.Send(ctx, c, x, next); err != nil {
			return err
		}
	}
	return nil
}

// schedules: in each step each rank sends to the one that a permutation names, with a length
// of its own; all ranks draw the same. Some steps are collectives, and some are on a half of the ranks.
func schedules(ctx context.Context, world *comm.Comm) error {
	half, err := world.Split(ctx, world.Rank()%2, 0)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(uint64(world.Size()), 11))
	lengths := []int{0, 1, 7, 8, 9, 100, 5000, 40_000}
	for step := range 60 {
		seed, on := rng.Uint64(), []*comm.Comm{world, world, half}[rng.IntN(3)]
		if rng.IntN(4) == 0 {
			if sum, err := total(ctx, on, 1); err != nil || sum != on.Size() {
				return fmt.Errorf("step %d: a sum of %d, %w", step, sum, err)
			}
			continue
		}
		own := rand.New(rand.NewPCG(seed, 0))
		to, length, from := own.Perm(on.Size()), make([]int, on.Size()), 0
		for r := range length {
			length[r] = lengths[own.IntN(len(lengths))]
			if to[r] == on.Rank() {
				from = r
			}
		}
		src, dst := make([]int32, length[on.Rank()]), make([]int32, length[from])
		letter(src, on.Rank(), step)
		if err := comm.SendRecv(ctx, on, dst, from, src, to[on.Rank()]); err != nil {
			return err
		}
		if err := isLetter(dst, from, step); err != nil {
			return fmt.Errorf("on %s: %w", on.Name(), err)
		}
	}
	return nil
}

// recordedSendRecv: a recording and the statistics have a Send and a Recv.
func recordedSendRecv(ctx context.Context, c *comm.Comm) error {
	n, me := c.Size(), c.Rank()
	r := c.Record()
	err := comm.SendRecv(ctx, c, make([]int32, 5), (me+n-1)%n, make([]int32, 5), (me+1)%n)
	events := r.Stop()
	if err != nil {
		return err
	}
	kinds := map[comm.Kind]int{}
	for _, e := range events {
		kinds[e.Kind]++
		if e.Bytes != 20 || e.Count != 5 || e.Cause != "SendRecv" || !strings.HasPrefix(e.Site(), "commtest/sendrecv.go:") {
			return fmt.Errorf("recorded %+v at %s", e, e.Site())
		}
	}
	if kinds[comm.SendKind] != 1 || kinds[comm.RecvKind] != 1 || len(events) != 2 {
		return fmt.Errorf("recorded %v, want a Send and a Recv", kinds)
	}
	return nil
}

// sendRecvDisagrees: all ranks expect one element more than is sent.
func sendRecvDisagrees(ctx context.Context, world *comm.Comm) error {
	n, me := world.Size(), world.Rank()
	if n == 1 {
		return nil
	}
	for _, count := range []int{2, 9000} {
		if err := breaking(ctx, world, func(c *comm.Comm) error {
			err := comm.SendRecv(ctx, c, make([]float64, count+1), (me+n-1)%n, make([]float64, count), (me+1)%n)
			return want(err, comm.ErrMismatch, "for SendRecv", "give Send and Recv as many elements of one type")
		}); err != nil {
			return err
		}
	}
	return nil
}

func sendRecvMisuse(ctx context.Context, world *comm.Comm) error {
	n, me := world.Size(), world.Rank()
	x := make([]float32, 8)
	type pointed struct{ P *int }
	for _, try := range []attempt{
		{"dst and src overlap", func(c *comm.Comm) error { return comm.SendRecv(ctx, c, x[1:5], me, x[:4], me) }},
		{"is not in the communicator", func(c *comm.Comm) error { return comm.SendRecv(ctx, c, x[:4], n, x[4:], n) }},
		{"len(dst) is 3 and len(src) 4", func(c *comm.Comm) error { return comm.SendRecv(ctx, c, x[:3], me, x[4:], me) }},
		{"holds a pointer", func(c *comm.Comm) error {
			return comm.SendRecv(ctx, c, make([]pointed, 1), me, make([]pointed, 1), me)
		}},
	} {
		if err := breaking(ctx, world, func(c *comm.Comm) error { return want(try.call(c), nil, try.name) }); err != nil {
			return err
		}
	}
	return nil
}

// sendRecvDeadline: rank 1 makes no call, so those of the others run out of time.
func sendRecvDeadline(ctx context.Context, world *comm.Comm) error {
	n, me := world.Size(), world.Rank()
	if n == 1 {
		return nil
	}
	return breaking(ctx, world, func(c *comm.Comm) error {
		if me == 1 {
			return want(comm.Barrier(ctx, c), nil)
		}
		ctx, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
		defer cancel()
		err := comm.SendRecv(ctx, c, make([]int32, 9000), (me+n-1)%n, make([]int32, 9000), (me+1)%n)
		if err == nil && me != 0 && me != 2 { // not with rank 1: it learns of it one call later
			return want(comm.Barrier(ctx, c), nil)
		}
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, comm.ErrAborted) {
			return fmt.Errorf("got %v, want a deadline or an abort", err)
		}
		return want(err, nil, "SendRecv")
	})
}

// endBeforeSendRecv: the last rank returns while the others exchange around the ring.
func endBeforeSendRecv(t *testing.T, run Harness, n int) {
	if n == 1 {
		return
	}
	for r, err := range run(t.Context(), n, func(ctx context.Context, c *comm.Comm) error {
		me := c.Rank()
		for range n + 3 { // more than ranks that are far from the last one may go on without it
			if err := comm.SendRecv(ctx, c, make([]int32, 9000), (me+n-1)%n, make([]int32, 9000), (me+1)%n); err != nil || me == n-1 {
				return err
			}
		}
		return nil
	}) {
		switch {
		case r == n-1 && err != nil:
			t.Errorf("rank %d of %d, which ended: %v", r, n, err)
		case r < n-1 && (!errors.Is(err, comm.ErrEnded) || !strings.Contains(err.Error(), fmt.Sprintf("rank %d ended", n-1))):
			t.Errorf("rank %d of %d: got %v, want that rank %d ended", r, n, err, n-1)
		}
	}
}
