package topology_test

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/comm/topology"
)

// A ring of cells is divided among 3 ranks. Each has 2 cells of its own, and a halo of 1 on
// either side.
func ExampleHalo() {
	commtest.Ranks(context.Background(), 3, func(ctx context.Context, world *comm.Comm) error {
		g, err := topology.NewGrid(ctx, world, []int{0}, []bool{true})
		if err != nil {
			return err
		}
		r := float64(world.Rank())
		block := []float64{-1, 10 * r, 10*r + 1, -1}
		if err := topology.Halo(ctx, g, block, []int{4}, 1); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(block)
		}
		return nil
	})
	// Output: [21 0 1 10]
}

// Each rank sends a number to the ranks that need it. All others need the number of rank 0.
func ExampleAllGather() {
	commtest.Ranks(context.Background(), 3, func(ctx context.Context, world *comm.Comm) error {
		needs := [][]int{{1, 2}, {2}, {}}[world.Rank()] // the ranks that this one sends to
		g, err := topology.NewGraph(ctx, world, nil, needs)
		if err != nil {
			return err
		}
		numbers := make([]int, len(g.Sources()))
		if err := topology.AllGather(ctx, g, numbers, []int{100 + world.Rank()}); err != nil {
			return err
		}
		if world.Rank() == 2 {
			fmt.Println(g.Sources(), numbers)
		}
		return nil
	})
	// Output: [0 1] [100 101]
}
