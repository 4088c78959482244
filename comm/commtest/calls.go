package commtest

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/backend"
)

// everyCall returns one call of each collective over c, with parts of count
// elements and results of their own: of each kind in comm's table but Split, which Split
// and Group make, and messages. An element of a source depends on its rank and its index
// alone.
func everyCall[T comm.Elem](c *comm.Comm, count, root int, op comm.Op) (calls []comm.Call) {
	for kind := comm.Invalid + 1; kind < comm.Kinds; kind++ {
		if collective(kind) {
			calls = append(calls, callOf[T](c, kind, count, root, op))
		}
	}
	return calls
}

// collective reports whether every rank makes a call of a kind by itself: it is not a step of Split, a
// message, or a call of one rank alone.
func collective(kind comm.Kind) bool {
	return kind != comm.SplitKind && !kind.PointToPoint() && !kind.OneSided() && !kind.Tagged()
}

// callOf returns a call of one kind, as everyCall does.
func callOf[T comm.Elem](c *comm.Comm, kind comm.Kind, count, root int, op comm.Op) comm.Call {
	values, shape := codecOf[T](), kind.Shape()
	call := comm.Call{Kind: kind}
	buffer := func(l backend.Layout, counts *[]int, fill bool) comm.Buffer {
		n := count
		switch l {
		case backend.Unused:
			return comm.Buffer{}
		case backend.Counted:
			*counts = repeat(c.Size(), count)
			n *= c.Size()
		case backend.Parts:
			n *= c.Size()
		}
		s := make([]T, n)
		for i := range s {
			if fill {
				s[i] = values.to(values.value(c.Rank(), i, 0))
			}
		}
		return comm.Of(s)
	}
	call.Dst = buffer(shape.Dst, &call.DstCounts, shape.Root == backend.RootShares)
	call.Src = buffer(shape.Src, &call.SrcCounts, true)
	if shape.InPlace {
		call.Dst = call.Src
	}
	if kind.Rooted() {
		call.Root = root
	}
	if kind.Reduces() {
		call.Op = op
	}
	return call
}

// everyKind makes a call of each kind in comm's table, few and many elements, so that the
// error of a backend that lacks one names it.
func everyKind(ctx context.Context, world *comm.Comm) error {
	for _, count := range []int{1, 70001} {
		for _, call := range everyCall[float32](world, count, world.Size()-1, comm.Sum) {
			c, err := dup(ctx, world)
			if err != nil {
				return err
			}
			if err := c.Do(ctx, call); err != nil {
				return fmt.Errorf("the backend does not carry out %v: %w", call.Kind, err)
			}
		}
	}
	return nil
}

// checked returns an error that names the kinds that none of Collectives compares with
// the loop of its documentation.
func checked(ctx context.Context, world *comm.Comm) error {
	before := world.Stats()
	if err := newTyped[int32](ctx, world, onHeap).all(2, comm.Sum); err != nil {
		return err
	}
	after := world.Stats()
	for kind := comm.Invalid + 1; kind < comm.Kinds; kind++ {
		if collective(kind) && after.Kinds[kind].Calls == before.Kinds[kind].Calls {
			return fmt.Errorf("no case compares %v with what its documentation says; add one to typed", kind)
		}
	}
	return nil
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
