package commtest

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/comm"
)

// everyCall returns one call of each collective over c, with parts of count
// elements and results of their own. An element of a source depends on its rank and
// its index alone.
func everyCall[T comm.Elem](c *comm.Comm, count, root int, op comm.Op) []comm.Call {
	n := c.Size()
	values := codecOf[T]()
	dst := func(parts int) comm.Buffer { return comm.Of(make([]T, parts*count)) }
	src := func(parts int) comm.Buffer {
		s := make([]T, parts*count)
		for i := range s {
			s[i] = values.to(values.value(c.Rank(), i, 0))
		}
		return comm.Of(s)
	}
	counts := repeat(n, count)
	own := src(1)
	return []comm.Call{
		{Kind: comm.AllReduceKind, Op: op, Dst: own, Src: own},
		{Kind: comm.ReduceKind, Op: op, Root: root, Dst: dst(1), Src: src(1)},
		{Kind: comm.ReduceScatterKind, Op: op, Dst: dst(1), Src: src(n)},
		{Kind: comm.ReduceScatterVKind, Op: op, Dst: dst(1), Src: src(n), SrcCounts: counts},
		{Kind: comm.AllGatherKind, Dst: dst(n), Src: src(1)},
		{Kind: comm.AllGatherVKind, Dst: dst(n), Src: src(1), DstCounts: counts},
		{Kind: comm.GatherKind, Root: root, Dst: dst(n), Src: src(1)},
		{Kind: comm.GatherVKind, Root: root, Dst: dst(n), Src: src(1), DstCounts: counts},
		{Kind: comm.ScatterKind, Root: root, Dst: dst(1), Src: src(n)},
		{Kind: comm.ScatterVKind, Root: root, Dst: dst(1), Src: src(n), SrcCounts: counts},
		{Kind: comm.AllToAllKind, Dst: dst(n), Src: src(n)},
		{Kind: comm.AllToAllVKind, Dst: dst(n), Src: src(n), DstCounts: counts, SrcCounts: counts},
		{Kind: comm.BroadcastKind, Root: root, Dst: src(1)},
		{Kind: comm.BarrierKind},
	}
}

// started: started on several communicators at once, every collective leaves what
// it does when it blocks.
func started(ctx context.Context, world *comm.Comm) error {
	half, err := world.Split(ctx, world.Rank()%2, -world.Rank())
	if err != nil {
		return err
	}
	for _, count := range []int{0, 1, 9, 3000} {
		groups := []*comm.Comm{world, half}
		var calls [2][]comm.Call
		var pending [2][]*comm.Pending
		for g, c := range groups {
			calls[g] = everyCall[float32](c, count, c.Size()-1, comm.Sum)
			for _, call := range calls[g] {
				pending[g] = append(pending[g], c.Start(ctx, call))
			}
		}
		for g, c := range groups {
			for k, want := range everyCall[float32](c, count, c.Size()-1, comm.Sum) {
				if err := pending[g][k].Wait(); err != nil {
					return err
				}
				if err := c.Do(ctx, want); err != nil {
					return err
				}
				if got := calls[g][k]; string(got.Dst.Data()) != string(want.Dst.Data()) {
					return fmt.Errorf("%v on %s: started, it leaves %x, blocking %x", &want, c.Name(), got.Dst.Data(), want.Dst.Data())
				}
			}
		}
	}
	return nil
}

// onASplit runs every collective on elements of type T on ranks in another order
// and, with counts that take staging windows, with buffers of both kinds.
func onASplit[T comm.Elem](ctx context.Context, world *comm.Comm) error {
	c, err := world.Split(ctx, world.Rank()%2, -world.Rank())
	if err != nil {
		return err
	}
	t := newTyped[T](ctx, c, mixed)
	if err := t.all(7, comm.Min); err != nil {
		return err
	}
	return t.all(5003, comm.Max)
}
