package commtest

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/topology"
)

// topologies: neighbours exchange the halo of a torus, in one message of few and of many
// elements, and numbers along the edges of a graph.
func topologies(ctx context.Context, world *comm.Comm) error {
	g, err := topology.NewGrid(ctx, world, []int{0, 0}, []bool{true, true})
	if err != nil {
		return err
	}
	for _, size := range []int{1, 3, 3000} {
		const rows = 4 // 2 of them the rank's own
		columns := size + 2
		block := make([]int32, rows*columns)
		cell := func(coords []int, i, j int) int32 { // row i and column j of a rank's own
			return int32(g.RankAt(coords)<<20 + i<<16 + j)
		}
		at := g.Coords()
		for i := range 2 {
			for j := range size {
				block[(i+1)*columns+j+1] = cell(at, i, j)
			}
		}
		if err := topology.Halo(ctx, g, block, []int{rows, columns}, 1); err != nil {
			return err
		}
		for k, got := range block {
			i, j := k/columns-1, k%columns-1
			owner := []int{at[0] + floor(i, 2), at[1] + floor(j, size)}
			if want := cell(owner, i-2*floor(i, 2), j-size*floor(j, size)); got != want {
				return fmt.Errorf("halo of %d columns on a grid of %v: [%d, %d] is %#x, want %#x", size, g.Dims(), i, j, got, want)
			}
		}
	}
	n, me := world.Size(), world.Rank()
	ring, err := topology.NewGraph(ctx, world, nil, []int{(me + 1) % n, (me + 2) % n})
	if err != nil {
		return err
	}
	got := make([]int, len(ring.Sources()))
	if err := topology.AllGather(ctx, ring, got, []int{me}); err != nil {
		return err
	}
	for i, r := range ring.Sources() {
		if got[i] != r {
			return fmt.Errorf("along the edges of a graph: part %d is of rank %d, want %d", i, got[i], r)
		}
	}
	return nil
}

// floor returns a/b, rounded down.
func floor(a, b int) int { return (a+b)/b - 1 }
