package commtest

import (
	"context"
	"fmt"
	"strings"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/invariant"
)

// columnParts: calls whose parts are columns of a buffer give what the same calls
// give whose parts lie one after another, whichever of the buffers on whichever
// ranks are laid out so.
func columnParts(ctx context.Context, world *comm.Comm) error {
	c, err := dup(ctx, world)
	if err != nil {
		return err
	}
	if !c.Internals().SupportsRows() {
		return nil // see rowsRefused
	}
	for w := range places {
		t := newTyped[float32](ctx, c, w)
		for i, width := range []int{0, 1, 3, 40, 700, 40_000} {
			if invariant.Enabled && width*c.Size() > 20_000 {
				continue
			}
			for _, rows := range []int{2, 5} {
				if err := t.columns(width, rows, i); err != nil {
					return fmt.Errorf("%v, width %d, %d rows: %w", w, width, rows, err)
				}
			}
		}
		t.free()
	}
	return nil
}

// rowsRefused: calls whose parts cannot be columns are errors that say why, and so is
// every such call of a backend that does not take them.
func rowsRefused(ctx context.Context, world *comm.Comm) error {
	n := world.Size()
	counts, even, buf := repeat(n, 3), repeat(n, 2), comm.Of(make([]int32, 3*n))
	for _, t := range []struct {
		call comm.Call
		want string
		lack bool // only where rows are not taken
	}{
		{comm.Call{Kind: comm.AllGatherVKind, Dst: buf, DstRows: 2, Src: comm.Of(make([]int32, 3)), DstCounts: counts}, "whole columns of 2 rows",
			false},
		{comm.Call{Kind: comm.AllReduceKind, Op: comm.Sum, Dst: buf, Src: buf, SrcRows: 3}, "SrcRows is 3", false},
		{comm.Call{Kind: comm.BroadcastKind, Dst: buf, DstRows: 3}, "DstRows is 3", false},
		{comm.Call{Kind: comm.AllGatherVKind, Dst: buf.Slice(0, 2*n), DstRows: 2, Src: comm.Of(make([]int32, 2)), DstCounts: even},
			"SupportsRows", true},
	} {
		c, err := dup(ctx, world)
		if err != nil {
			return err
		}
		if t.lack && c.Internals().SupportsRows() {
			continue
		}
		if err := c.Do(ctx, t.call); err == nil || !strings.Contains(err.Error(), t.want) {
			return fmt.Errorf("%v returned %v, want %q in it", t.call.Kind, err, t.want)
		}
	}
	return nil
}

// columns runs the calls that take columns, with parts of about width columns.
func (t *typedTest[T]) columns(width, rows, variant int) error {
	c, n, me := t.c, t.c.Size(), t.c.Rank()
	woven := func(k int) bool { return (me*5+variant*3+k)%4 < 2 }
	counts := uneven(n, width)
	from, to := make([]int, n), make([]int, n)
	for q := range n {
		counts[q] *= rows
		from[q], to[q] = sends(q, me, width)*rows, sends(me, q, width)*rows
	}
	calls := []comm.Call{
		{Kind: comm.AllGatherVKind, DstCounts: counts},
		{Kind: comm.ReduceScatterVKind, Op: comm.Sum, SrcCounts: counts},
		{Kind: comm.ReduceScatterVKind, Op: comm.Max, SrcCounts: counts},
		{Kind: comm.AllToAllVKind, DstCounts: from, SrcCounts: to},
	}
	for k, call := range calls {
		m, s := counts[me], counts[me]
		if call.DstCounts != nil {
			m = ints.Sum(call.DstCounts)
		}
		if call.SrcCounts != nil {
			s = ints.Sum(call.SrcCounts)
		}
		want, src, err := t.buffers(m, s)
		if err != nil {
			return err
		}
		got, err := take[T](&t.arena, m)
		if err != nil {
			return err
		}
		call.Dst, call.Src = comm.Of(want), comm.Of(src)
		if err := c.Do(t.ctx, call); err != nil {
			return err
		}
		call.Dst = comm.Of(got)
		if call.SrcCounts != nil && woven(k) {
			call.SrcRows = rows
			copy(src, weave(src, call.SrcCounts, rows))
		}
		if call.DstCounts != nil && woven(k+1) {
			call.DstRows = rows
			want = weave(want, call.DstCounts, rows)
		}
		if err := c.Do(t.ctx, call); err != nil {
			return err
		}
		if err := t.check(fmt.Sprintf("%v of %d and %d rows", call.Kind, call.SrcRows, call.DstRows), got,
			func(i int) float64 { return t.from(want[i]) }); err != nil {
			return err
		}
	}
	return nil
}

// weave lays out the parts of x, one after another, as columns of rows.
func weave[T any](x []T, counts []int, rows int) []T {
	out := make([]T, 0, len(x))
	for row := range rows {
		at := 0
		for _, n := range counts {
			w := n / rows
			out = append(out, x[at+row*w:at+(row+1)*w]...)
			at += n
		}
	}
	return out
}
