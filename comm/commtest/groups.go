package commtest

import (
	"context"
	"fmt"
	"math"

	"github.com/gorun-spmd/gorun/comm"
)

// Groups returns the cases about communicators: making them, using several at a
// time, counting their calls.
func Groups() []Case {
	return []Case{
		{"Split", splits},
		{"SplitHosts", hosts},
		{"topologies", topologies},
		{"Group", groups},
		{"groups of one", loners},
		{"many communicators", manyCommunicators},
		{"Attr", attributes},
		{"statistics", statistics},
		{"Memory", memory},
		{"Start and Wait", asynchronous},
		{"Start of every collective", started},
	}
}

// total sums one number over a communicator.
func total(ctx context.Context, c *comm.Comm, x int) (int, error) {
	buf := []int64{int64(x)}
	err := comm.AllReduce(ctx, c, buf, comm.Sum)
	return int(buf[0]), err
}

func splits(ctx context.Context, c *comm.Comm) error {
	me, n := c.Rank(), c.Size()
	// Even and odd ranks, in falling order of rank.
	half, err := c.Split(ctx, me%2, -me)
	if err != nil {
		return err
	}
	var members []int
	want := 0
	for r := n - 1; r >= 0; r-- {
		if r%2 == me%2 {
			members = append(members, r)
			want += r
		}
	}
	if half.Size() != len(members) || half.WorldRank(half.Rank()) != c.WorldRank(me) {
		return fmt.Errorf("split of %v: size %d, rank %d is world rank %d", members, half.Size(), half.Rank(), half.WorldRank(half.Rank()))
	}
	for i, m := range members {
		if half.WorldRank(i) != c.WorldRank(m) {
			return fmt.Errorf("rank %d of the split is world rank %d, want %d", i, half.WorldRank(i), c.WorldRank(m))
		}
	}
	if got, err := total(ctx, half, me); err != nil || got != want {
		return fmt.Errorf("sum over %v is %d, %w, want %d", members, got, err, want)
	}
	// Keys as far from each other as there are any.
	far, err := c.Split(ctx, 0, []int{math.MaxInt, 0, math.MinInt}[min(me, 2)])
	if err != nil {
		return err
	}
	if want := []int{n - 1, max(0, n-2), me - 2}[min(me, 2)]; far.Rank() != want {
		return fmt.Errorf("rank %d of %d is %d by keys at both ends, want %d", me, n, far.Rank(), want)
	}
	// Only rank 0 and the last join.
	color := -1
	if me == 0 || me == n-1 {
		color = 3
	}
	ends, err := c.Split(ctx, color, 0)
	if err != nil {
		return err
	}
	if (ends == nil) != (color < 0) {
		return fmt.Errorf("rank %d with colour %d got %v", me, color, ends)
	}
	if ends != nil {
		if _, err := total(ctx, ends, 1); err != nil {
			return err
		}
	}
	// A split of a split.
	again, err := half.Split(ctx, half.Rank()/2, 0)
	if err != nil {
		return err
	}
	if got, err := total(ctx, again, 1); err != nil || got != again.Size() || got > 2 {
		return fmt.Errorf("split of a split: sum %d, %w, size %d", got, err, again.Size())
	}
	return nil
}

func groups(ctx context.Context, c *comm.Comm) error {
	n, me := c.Size(), c.Rank()
	reversed := make([]int, n)
	for r := range n {
		reversed[r] = n - 1 - r
	}
	g, err := c.Group(ctx, reversed)
	if err != nil {
		return err
	}
	if g.Rank() != n-1-me {
		return fmt.Errorf("rank %d of the reversed group is %d", me, g.Rank())
	}
	all, own := make([]int32, n), []int32{int32(me)}
	if err := comm.AllGather(ctx, g, all, own); err != nil {
		return err
	}
	for i, r := range all {
		if int(r) != n-1-i {
			return fmt.Errorf("gathered over the reversed group: %v", all)
		}
	}
	if n < 3 {
		return nil
	}
	g, err = c.Group(ctx, []int{2, 0})
	if err != nil {
		return err
	}
	if (g == nil) != (me != 0 && me != 2) {
		return fmt.Errorf("rank %d in the group of 2 and 0: %v", me, g)
	}
	if g != nil {
		if got, err := total(ctx, g, me); err != nil || got != 2 {
			return fmt.Errorf("sum over ranks 2 and 0 is %d, %w", got, err)
		}
	}
	return nil
}

func loners(ctx context.Context, c *comm.Comm) error {
	one, err := c.Split(ctx, c.Rank(), 0)
	if err != nil {
		return err
	}
	if one.Size() != 1 || one.WorldRank(0) != c.WorldRank(c.Rank()) {
		return fmt.Errorf("size %d, world rank %d", one.Size(), one.WorldRank(0))
	}
	t := newTyped[float32](ctx, one, onHeap)
	return t.all(5, comm.Avg)
}

// manyCommunicators uses a row and a column of a grid and the world in turn,
// each from its own goroutine order on every rank.
func manyCommunicators(ctx context.Context, c *comm.Comm) error {
	width := 1
	for width*width < c.Size() {
		width++
	}
	row, err := c.Split(ctx, c.Rank()/width, 0)
	if err != nil {
		return err
	}
	column, err := c.Split(ctx, c.Rank()%width, 0)
	if err != nil {
		return err
	}
	for k := range 50 {
		for _, g := range []*comm.Comm{row, c, column} {
			if got, err := total(ctx, g, k); err != nil || got != k*g.Size() {
				return fmt.Errorf("round %d of %s: sum %d, %w, want %d", k, g.Name(), got, err, k*g.Size())
			}
		}
	}
	return nil
}

type attrKey struct{}

func attributes(ctx context.Context, c *comm.Comm) error {
	half, err := c.Split(ctx, c.Rank()%2, 0)
	if err != nil {
		return err
	}
	made := 0
	makeOne := func() any { made++; return &made }
	a, b := c.Internals().Attr(attrKey{}, makeOne), half.Internals().Attr(attrKey{}, makeOne)
	if a != b || made > 1 {
		return fmt.Errorf("two values under one key, %d made", made)
	}
	return nil
}

func statistics(ctx context.Context, c *comm.Comm) error {
	half, err := c.Split(ctx, c.Rank()%2, 0)
	if err != nil {
		return err
	}
	before := c.Stats()
	r := c.Record()
	if _, err := total(ctx, half, 1); err != nil {
		return err
	}
	buf := []float32{1, 2}
	if err := c.Do(ctx, comm.Call{Kind: comm.BroadcastKind, Dst: comm.Of(buf), Cause: "test"}); err != nil {
		return err
	}
	events := r.Stop()
	if err := comm.Barrier(ctx, c); err != nil {
		return err
	}
	if got, want := r.Stats().String(), "AllReduce×1 8 B, Broadcast×1 8 B"; got != want || len(events) != 2 {
		return fmt.Errorf("recorded %q, %d events, want %q", got, len(events), want)
	}
	if e := events[1]; e.Cause != "test" || e.Comm != c.Name() || e.DType != comm.Float32 || e.Time <= 0 || e.Site() == "" {
		return fmt.Errorf("recorded %+v at %q", e, e.Site())
	}
	after := c.Stats()
	key := comm.Cause{Kind: comm.BroadcastKind, Cause: "test"}
	if n := after.Total().Calls - before.Total().Calls; n != 3 || after.Causes[key].Bytes-before.Causes[key].Bytes != 8 {
		return fmt.Errorf("%d calls counted, want 3: %v, then %v", n, before, after)
	}
	return nil
}

func memory(_ context.Context, c *comm.Comm) error {
	for _, bytes := range []int{1, 64, 5000, 3 << 20} {
		p, err := c.Memory().Alloc(bytes)
		if err != nil {
			return err
		}
		if !aligned(p) {
			return fmt.Errorf("%d bytes at %p", bytes, p)
		}
		c.Memory().Free(p, bytes)
	}
	return nil
}

// asynchronous mixes started and blocking calls on two communicators.
func asynchronous(ctx context.Context, c *comm.Comm) error {
	half, err := c.Split(ctx, c.Rank()%2, 0)
	if err != nil {
		return err
	}
	for _, n := range []int{1, 20_000} {
		var pending []*comm.Pending
		bufs := make([][]int32, 8)
		for k := range bufs {
			bufs[k] = make([]int32, n)
			for i := range bufs[k] {
				bufs[k][i] = int32(k + i)
			}
			g := []*comm.Comm{c, half}[k%2]
			pending = append(pending, g.Start(ctx, comm.Call{Kind: comm.AllReduceKind, Op: comm.Sum, Dst: comm.Of(bufs[k]), Src: comm.Of(bufs[k])}))
		}
		for _, g := range []*comm.Comm{half, c} { // after those already started
			if got, err := total(ctx, g, 1); err != nil || got != g.Size() {
				return fmt.Errorf("a blocking call after started ones: %d, %w", got, err)
			}
		}
		for k, p := range pending {
			select {
			case <-p.Done():
			default:
				return fmt.Errorf("call %d has not ended before a later blocking one", k)
			}
			if err := p.Wait(); err != nil {
				return err
			}
			size := []int{c.Size(), half.Size()}[k%2]
			for i, x := range bufs[k] {
				if want := int32(size * (k + i)); x != want {
					return fmt.Errorf("call %d: [%d] is %d, want %d", k, i, x, want)
				}
			}
		}
	}
	return nil
}
