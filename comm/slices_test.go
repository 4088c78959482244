package comm_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
)

// Each rank has a slice for each other, of which some are empty.
func TestAllToAllSlices(t *testing.T) {
	part := func(from, to int) []int32 {
		return slices.Repeat([]int32{int32(10*from + to)}, (from*3+to*to)%4)
	}
	for _, n := range []int{1, 2, 3, 4} {
		commtest.Run(t, n, func(ctx context.Context, world *comm.Comm) error {
			src, want := make([][]int32, n), make([][]int32, n)
			for r := range n {
				src[r], want[r] = part(world.Rank(), r), part(r, world.Rank())
			}
			record := world.Record()
			got, err := comm.AllToAllSlices(ctx, world, src)
			if err != nil || !slices.EqualFunc(got, want, slices.Equal[[]int32]) {
				return fmt.Errorf("AllToAllSlices is %v, %v; want %v", got, err, want)
			}
			record.Stop()
			if calls := record.Stats().Calls(); calls != "AllToAll×1, AllToAllV×1" {
				return fmt.Errorf("calls: %s", calls)
			}
			if _, err := comm.AllToAllSlices(ctx, world, src[1:]); err == nil {
				return fmt.Errorf("%d slices for %d ranks pass", n-1, n)
			}
			return nil
		})
	}
}

// Ranks gather slices of lengths that only they know, of which some are empty.
func TestGatherSlices(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4} {
		commtest.Run(t, n, func(ctx context.Context, world *comm.Comm) error {
			want := make([][]int32, n)
			for r := range want {
				want[r] = slices.Repeat([]int32{int32(r)}, r*(n-r)%5)
			}
			mine, root := want[world.Rank()], n-1
			all, err := comm.AllGatherSlices(ctx, world, mine)
			if err != nil || !slices.EqualFunc(all, want, slices.Equal[[]int32]) {
				return fmt.Errorf("AllGatherSlices is %v, %v; want %v", all, err, want)
			}
			got, err := comm.GatherSlices(ctx, world, mine, root)
			if world.Rank() != root {
				want = nil
			}
			if err != nil || !slices.EqualFunc(got, want, slices.Equal[[]int32]) {
				return fmt.Errorf("GatherSlices is %v, %v; want %v", got, err, want)
			}
			return nil
		})
	}
}
