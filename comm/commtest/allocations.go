package commtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/message"
	"github.com/gorun-spmd/gorun/internal/dtype"
)

// maxStarted is what an asynchronous call may allocate on its rank: the Pending,
// its channel, its call site, and the goroutine that carries it out.
const maxStarted = 5

// TestAllocations checks that blocking collectives allocate nothing, on any of two
// ranks, once they have been made before, and asynchronous ones at most maxStarted
// times.
func TestAllocations(t *testing.T, run Harness) {
	for r, err := range run(t.Context(), 2, allocations) {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

func allocations(ctx context.Context, c *comm.Comm) error {
	for _, count := range []int{3, 700, 5000} { // in a slot, beside it, staged
		for w := range places {
			if err := errors.Join(allocationsOf[float32](ctx, c, count, w), allocationsOf[dtype.BF16](ctx, c, count, w)); err != nil {
				return err
			}
		}
	}
	return nil
}

// TestMessageAllocations checks that the blocking calls of package message allocate nothing, on any of two ranks. It is
// not for package mem, whose ranks allocate when they wait.
func TestMessageAllocations(t *testing.T, run Harness) {
	for r, err := range run(t.Context(), 2, allocationsOfMessages) {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

func allocationsOfMessages(ctx context.Context, c *comm.Comm) error {
	return mailbox(ctx, c, func(m *message.Mailbox) error {
		peer := 1 - c.Rank()
		for _, count := range []int{0, 3, 700} { // in a line, in several; a longer message allocates its transfer
			out, in := make([]float32, count), make([]float32, count)
			for _, call := range []struct {
				name string
				make func() error
			}{
				{"SendRecv", func() error {
					_, err := message.SendRecv(ctx, m, in, peer, 1, out, peer, 1)
					return err
				}},
				{"Send and Recv", func() error {
					if c.Rank() == 0 {
						return message.Send(ctx, m, out, peer, 2)
					}
					_, err := message.Recv(ctx, m, in, message.AnySource, message.AnyTag)
					return err
				}},
			} {
				if got, err := countAllocations(ctx, c, call.make); err != nil || got > 0 {
					return errors.Join(err, fmt.Errorf("message.%s of %d elements: %v allocations, want none", call.name, count, got))
				}
			}
		}
		return nil
	})
}

// allocationsOf checks every collective with parts of count elements.
func allocationsOf[T comm.Elem](ctx context.Context, c *comm.Comm, count int, w place) error {
	n, me := c.Size(), c.Rank()
	a := arena{c: c, where: w}
	defer a.free()
	long, err := take[T](&a, n*count)
	if err != nil {
		return err
	}
	all, err := take[T](&a, n*count)
	if err != nil {
		return err
	}
	part, counts := long[:count], repeat(n, count)
	join, err := comm.NewFunc("first", func(a, _ T) T { return a })
	if err != nil {
		return err
	}
	check := func(name string, most float64, call func() error) error {
		got, err := countAllocations(ctx, c, call)
		if err == nil && got > most {
			err = fmt.Errorf("%v allocations for each, on both ranks; want at most %v", got, most)
		}
		return ran(err, "%s of %d %v, %v", name, count, typeOf[T](), w)
	}
	for op := comm.Sum; op <= comm.Xor; op++ {
		if op.Accepts(typeOf[T]()) != nil {
			continue
		}
		if err := errors.Join(
			check("AllReduce "+op.String(), 0, func() error { return comm.AllReduce(ctx, c, part, op) }),
			check("Reduce "+op.String(), 0, func() error { return comm.Reduce(ctx, c, all[:count], part, op, 1) }),
			check("Scan "+op.String(), 0, func() error { return comm.Scan(ctx, c, all[:count], part, op) }),
			check("Exscan "+op.String(), 0, func() error { return comm.Exscan(ctx, c, all[:count], part, op) }),
			check("ReduceScatter "+op.String(), 0, func() error { return comm.ReduceScatter(ctx, c, all[:count], long, op) }),
			check("ReduceScatterV "+op.String(), 0, func() error { return comm.ReduceScatterV(ctx, c, all[:count], long, counts, op) }),
		); err != nil {
			return err
		}
	}
	return errors.Join(
		check("AllReduceFunc", 0, func() error { return comm.AllReduceFunc(ctx, c, part, join) }),
		check("AllGather", 0, func() error { return comm.AllGather(ctx, c, all, part) }),
		check("AllGatherV", 0, func() error { return comm.AllGatherV(ctx, c, all, part, counts) }),
		check("Gather", 0, func() error { return comm.Gather(ctx, c, all, part, 0) }),
		check("GatherV", 0, func() error { return comm.GatherV(ctx, c, all, part, counts, 0) }),
		check("Scatter", 0, func() error { return comm.Scatter(ctx, c, part, all, 1) }),
		check("ScatterV", 0, func() error { return comm.ScatterV(ctx, c, part, all, counts, 1) }),
		check("AllToAll", 0, func() error { return comm.AllToAll(ctx, c, all, long) }),
		check("AllToAllV", 0, func() error { return comm.AllToAllV(ctx, c, all, counts, long, counts) }),
		check("Broadcast", 0, func() error { return comm.Broadcast(ctx, c, part, 0) }),
		check("Barrier", 0, func() error { return comm.Barrier(ctx, c) }),
		check("Send and Recv", 0, func() error {
			if me == 0 {
				return comm.Send(ctx, c, part, 1)
			}
			return comm.Recv(ctx, c, part, 0)
		}),
		check("Start", maxStarted*float64(n), func() error {
			b := comm.Of(part)
			return c.Start(ctx, comm.Call{Kind: comm.AllReduceKind, Op: comm.Max, Dst: b, Src: b}).Wait()
		}),
	)
}

// countAllocations returns how often all ranks of this process together allocate
// in one call: the least of several tries, because what waits for long, or goes on
// beside the test, may allocate too.
func countAllocations(ctx context.Context, c *comm.Comm, call func() error) (least float64, err error) {
	const runs, tries = 10, 10
	round := func() {
		if e := call(); err == nil {
			err = e
		}
	}
	found := []float64{0}
	least = math.Inf(1)
	for range tries {
		if c.Rank() == 0 {
			found[0] = testing.AllocsPerRun(runs, round)
		} else {
			for range runs + 1 {
				round()
			}
		}
		if err != nil {
			return 0, err
		}
		if err := comm.Broadcast(ctx, c, found, 0); err != nil {
			return 0, err
		}
		if least = min(least, found[0]); least == 0 {
			break
		}
	}
	return least, nil
}
