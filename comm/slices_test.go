package comm_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
)

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
