// Command 09-row-wise-uneven gives four ranks 1, 3, 1 and 3 of the 8 rows of an
// embedding table, as a planner may want it, and turns that into even shards.
//
//	gorun -np 4 ./examples/09-row-wise-uneven
//
// Output:
//
//	rank 0 has [1 16] at [0 0]
//	rank 1 has [3 16] at [1 0]
//	rank 2 has [1 16] at [4 0]
//	rank 3 has [3 16] at [5 0]
//	[8, 16] S(0)[1 3 1 3] on (ranks=4)
//	    │ 0:16
//	────┼─────
//	0:1 │ 0
//	1:4 │ 1
//	4:5 │ 2
//	5:8 │ 3
//	[8, 16] S(0) on (ranks=4)
//	    │ 0:16
//	────┼─────
//	0:2 │ 0
//	2:4 │ 1
//	4:6 │ 2
//	6:8 │ 3
//	the sum of the table is 224
package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/mem"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/dtensor/visualize"
	"github.com/gorun-spmd/gorun/runtime"
	"github.com/gorun-spmd/gorun/tensor"
)

func main() {
	runtime.Main(func(ctx context.Context, world *comm.Comm) error { return mem.Run(ctx, world, 4, uneven) })
}

func uneven(ctx context.Context, world *comm.Comm) error {
	mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "ranks", Size: 4})
	if err != nil {
		return err
	}
	sizes := []int{1, 3, 1, 3}
	local := tensor.Full(mesh.Device(), tensor.Float32, float64(world.Rank()), sizes[world.Rank()], 16)
	// The sizes are part of the placement: every rank knows those of all.
	table, err := dtensor.FromLocal(mesh, local, []int{8, 16}, layout.ShardSizes(0, sizes...))
	if err != nil {
		return err
	}
	shards, err := table.Shards() // where the shards of all ranks lie
	if err != nil {
		return err
	}
	return dtensor.Try(ctx, mesh, func() {
		even := table.Redistribute(layout.Shard(0)) // [8, 16] S(0), by one exchange
		sum := even.Sum(nil, false).Full().Item()   // 16·(1·0 + 3·1 + 1·2 + 3·3)
		if world.Rank() != 0 {
			return
		}
		for _, c := range shards.Chunks() {
			fmt.Printf("rank %d has %v at %v\n", c.Position, c.Size, c.Offset)
		}
		for _, t := range []*dtensor.Tensor{table, even} {
			fmt.Print(strings.ReplaceAll(visualize.Tensor(t).String(), "\n\n", "\n"))
		}
		fmt.Printf("the sum of the table is %g\n", sum)
	})
}
