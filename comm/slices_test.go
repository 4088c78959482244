package comm_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
			return nil
		})
	}
}

// One rank has not a slice for each: all get an error, and nobody waits for it.
func TestSlicesForOtherRanks(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, world *comm.Comm, src [][]int32) error{
		"AllToAllV int32 for AllToAllSlices": func(ctx context.Context, world *comm.Comm, src [][]int32) error {
			_, err := comm.AllToAllSlices(ctx, world, src)
			return err
		},
		"ScatterV int32 root 1 for ScatterSlices": func(ctx context.Context, world *comm.Comm, src [][]int32) error {
			_, err := comm.ScatterSlices(ctx, world, src, 1)
			return err
		},
	} {
		for r, err := range commtest.Ranks(t.Context(), 3, func(ctx context.Context, world *comm.Comm) error {
			failed := call(ctx, world, make([][]int32, 3+world.Rank()%2))
			if err := comm.Barrier(ctx, world); err == nil {
				return errors.New("the communicator can be used after an error")
			}
			return failed
		}) {
			want := []string{"comm: " + name + " at comm/slices_test.go:", "(rank 1, call 1 of world): 4 slices for 3 ranks; give one for each"}
			if r != 1 {
				want = []string{"rank 1 aborted: ", "4 slices for 3 ranks"}
			}
			for _, w := range want {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("rank %d: %v, want %q", r, err, w)
				}
			}
		}
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
