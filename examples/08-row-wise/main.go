// Command 08-row-wise lays an embedding table of 8 rows of 16 features out over
// four ranks, two rows each, from shards that the ranks bring along.
//
//	gorun -np 4 ./examples/08-row-wise
//
// Output:
//
//	rank 0 has [2 16] at [0 0] as bfloat16
//	rank 1 has [2 16] at [2 0] as bfloat16
//	rank 2 has [2 16] at [4 0] as bfloat16
//	rank 3 has [2 16] at [6 0] as bfloat16
//	[8, 16] S(0) on (ranks=4)
//	    │ 0:16
//	────┼─────
//	0:2 │ 0
//	2:4 │ 1
//	4:6 │ 2
//	6:8 │ 3
//	the sum of the table is 192
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
	runtime.Main(func(ctx context.Context, world *comm.Comm) error { return mem.Run(ctx, world, 4, rowWise) })
}

func rowWise(ctx context.Context, world *comm.Comm) error {
	mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "ranks", Size: 4})
	if err != nil {
		return err
	}
	// Each rank has a shard [2, 16], filled with its rank, and says where it lies.
	const rows, features = 8, 16
	mine := dtensor.LocalShard{
		Data:   tensor.Full(mesh.Device(), tensor.Float32, float64(world.Rank()), rows/4, features),
		Offset: [2]int{world.Rank() * rows / 4, 0},
	}
	shards, err := dtensor.NewLocalShards(mesh, tensor.Float32, [2]int{rows, features}, mine)
	if err != nil {
		return err
	}
	return dtensor.Try(ctx, mesh, func() {
		half := shards.Cast(tensor.BFloat16) // shard by shard
		table := shards.Distribute(layout.Shard(0))
		sum := table.Sum(nil, false).Full().Item() // 32 elements a rank: 32·(0+1+2+3)
		if world.Rank() != 0 {
			return
		}
		for _, c := range half.Chunks() {
			fmt.Printf("rank %d has %v at %v as %v\n", c.Position, c.Size, c.Offset, half.DType())
		}
		fmt.Print(strings.ReplaceAll(visualize.Tensor(table).String(), "\n\n", "\n"))
		fmt.Printf("the sum of the table is %g\n", sum)
	})
}
