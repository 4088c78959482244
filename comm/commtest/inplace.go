package commtest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/ints"
)

// inPlace: a call in place gives what the same call gives with two buffers, which is checked
// elsewhere.
func inPlace(ctx context.Context, c *comm.Comm) error {
	for w := range places {
		for _, count := range []int{1, 9, 5003} {
			t := newTyped[float32](ctx, c, w)
			if err := t.inPlace(count); err != nil {
				return fmt.Errorf("%d elements, %v: %w", count, w, err)
			}
			t.free()
		}
	}
	return nil
}

func (t *typedTest[T]) inPlace(count int) error {
	n, me, root := t.c.Size(), t.c.Rank(), t.c.Size()-1
	at := func(s []T, counts []int) []T { return s[ints.Sum(counts[:me]):][:counts[me]] }
	even, odd := repeat(n, count), uneven(n, count)
	on := func(yes bool, s []T) []T {
		if yes {
			return s
		}
		return nil
	}
	// Each call is made with two buffers, and then in place. A call gets dst and src, or in
	// place one buffer as both; place returns the two slices of that buffer.
	whole := func(dst, src int) func(buf []T) ([]T, []T) {
		return func(buf []T) ([]T, []T) { return buf[:dst], buf[:src] }
	}
	for _, try := range []struct {
		name     string
		dst, src int // elements
		place    func(buf []T) (dst, src []T)
		call     func(dst, src []T) error
	}{
		{"AllGather", n * count, count, func(buf []T) ([]T, []T) { return buf, at(buf, even) },
			func(dst, src []T) error { return comm.AllGather(t.ctx, t.c, dst, src) }},
		{"AllGatherV", ints.Sum(odd), odd[me], func(buf []T) ([]T, []T) { return buf, at(buf, odd) },
			func(dst, src []T) error { return comm.AllGatherV(t.ctx, t.c, dst, src, odd) }},
		{"Gather", n * count, count, func(buf []T) ([]T, []T) { return buf, at(buf, even) },
			func(dst, src []T) error { return comm.Gather(t.ctx, t.c, on(me == root, dst), src, root) }},
		{"GatherV", ints.Sum(odd), odd[me], func(buf []T) ([]T, []T) { return buf, at(buf, odd) },
			func(dst, src []T) error { return comm.GatherV(t.ctx, t.c, on(me == root, dst), src, odd, root) }},
		{"Scatter", count, n * count, func(buf []T) ([]T, []T) { return at(buf, even), buf },
			func(dst, src []T) error { return comm.Scatter(t.ctx, t.c, dst, on(me == root, src), root) }},
		{"ScatterV", odd[me], ints.Sum(odd), func(buf []T) ([]T, []T) { return at(buf, odd), buf },
			func(dst, src []T) error { return comm.ScatterV(t.ctx, t.c, dst, on(me == root, src), odd, root) }},
		{"AllToAll", n * count, n * count, whole(n*count, n*count),
			func(dst, src []T) error { return comm.AllToAll(t.ctx, t.c, dst, src) }},
		{"AllToAllV", n * count, n * count, whole(n*count, n*count),
			func(dst, src []T) error { return comm.AllToAllV(t.ctx, t.c, dst, even, src, even) }},
		{"Reduce", count, count, whole(count, count),
			func(dst, src []T) error { return comm.Reduce(t.ctx, t.c, on(me == root, dst), src, comm.Sum, root) }},
		{"ReduceScatter", count, n * count, whole(count, n*count),
			func(dst, src []T) error { return comm.ReduceScatter(t.ctx, t.c, dst, src, comm.Sum) }},
		{"ReduceScatterV", odd[me], ints.Sum(odd), whole(odd[me], ints.Sum(odd)),
			func(dst, src []T) error { return comm.ReduceScatterV(t.ctx, t.c, dst, src, odd, comm.Sum) }},
		{"Scan", count, count, whole(count, count),
			func(dst, src []T) error { return comm.Scan(t.ctx, t.c, dst, src, comm.Sum) }},
		{"Exscan", count, count, whole(count, count),
			func(dst, src []T) error { return comm.Exscan(t.ctx, t.c, dst, src, comm.Sum) }},
	} {
		expected, src, err := t.buffers(try.dst, try.src)
		if err != nil {
			return err
		}
		buf, err := take[T](&t.arena, max(try.dst, try.src))
		if err != nil {
			return err
		}
		got, in := try.place(buf)
		copy(in, src)
		copy(expected, got) // what a call leaves alone is the same in both
		if err := errors.Join(try.call(expected, src), try.call(got, in)); err != nil {
			return ran(err, "%s", try.name)
		}
		if err := t.check(try.name+" in place", got, func(i int) float64 { return t.from(expected[i]) }); err != nil {
			return err
		}
	}
	return nil
}

// ofUnknownLengths: BroadcastSlices and ScatterSlices hand out slices whose lengths root alone
// knows.
func ofUnknownLengths(ctx context.Context, c *comm.Comm) error {
	n, me, root := c.Size(), c.Rank(), c.Size()-1
	for _, count := range []int{0, 5, 3000} {
		var one []particle
		var parts [][]particle
		if me == root {
			one = particles(root, 0, count)
			for r, k := range uneven(n, count) {
				parts = append(parts, particles(r, 7, k))
			}
		}
		all, err := comm.BroadcastSlices(ctx, c, one, root)
		if err != nil {
			return err
		}
		mine, err := comm.ScatterSlices(ctx, c, parts, root)
		if err != nil {
			return err
		}
		if !slices.Equal(all, particles(root, 0, count)) || !slices.Equal(mine, particles(me, 7, uneven(n, count)[me])) {
			return fmt.Errorf("of %d elements: got %d by BroadcastSlices, %d by ScatterSlices, or other ones", count, len(all), len(mine))
		}
	}
	return nil
}

// hosts: in a job on one machine SplitHosts gives all ranks, and each rank alone.
func hosts(ctx context.Context, c *comm.Comm) error {
	host, peers, err := c.SplitHosts(ctx)
	if err != nil {
		return err
	}
	if host.Size() != c.Size() || host.Rank() != c.Rank() || peers.Size() != 1 {
		return fmt.Errorf("SplitHosts: rank %d of %d on this machine, and %d peers; want %d of %d and 1", host.Rank(), host.Size(), peers.Size(),
			c.Rank(), c.Size())
	}
	return comm.Barrier(ctx, host)
}
