package comm_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
)

// Gathers and scatters of structs are made in place as those of numbers are.
func TestStructsInPlace(t *testing.T) {
	type triple [3]int32
	want := []triple{{1}, {2}, {3}, {4}, {5}, {6}}
	commtest.Run(t, 3, func(ctx context.Context, c *comm.Comm) error {
		root, lo, counts := 1, 2*c.Rank(), []int{2, 2, 2}
		for _, try := range []struct {
			name             string
			rooted, scatters bool
			call             func(all, mine []triple) error
		}{
			{"AllGather", false, false, func(all, mine []triple) error { return comm.AllGather(ctx, c, all, mine) }},
			{"AllGatherV", false, false, func(all, mine []triple) error { return comm.AllGatherV(ctx, c, all, mine, counts) }},
			{"Gather", true, false, func(all, mine []triple) error { return comm.Gather(ctx, c, all, mine, root) }},
			{"GatherV", true, false, func(all, mine []triple) error { return comm.GatherV(ctx, c, all, mine, counts, root) }},
			{"Scatter", true, true, func(all, mine []triple) error { return comm.Scatter(ctx, c, mine, all, root) }},
			{"ScatterV", true, true, func(all, mine []triple) error { return comm.ScatterV(ctx, c, mine, all, counts, root) }},
		} {
			all, onRoot := make([]triple, 6), c.Rank() == root
			switch {
			case !try.scatters:
				copy(all[lo:lo+2], want[lo:])
			case onRoot:
				copy(all, want)
			}
			buf := all
			if try.rooted && !onRoot { // there is a part alone
				buf = nil
			}
			if err := try.call(buf, all[lo:lo+2]); err != nil {
				return err
			}
			if !slices.Equal(all[lo:lo+2], want[lo:lo+2]) || buf != nil && !slices.Equal(all, want) {
				return fmt.Errorf("%s: %v", try.name, all)
			}
		}
		return nil
	})
}
