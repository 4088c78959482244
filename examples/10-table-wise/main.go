// Command 10-table-wise puts whole embedding tables on ranks of their own: each
// lies on a mesh of one of the four ranks, and is empty on the others.
//
//	gorun -np 4 ./examples/10-table-wise
//
// Output:
//
//	table 0: rank 0 has [8 16] at [0 0]
//	[8, 16] R on (owner=1)
//	    │ 0:16
//	────┼─────
//	0:8 │ 0
//	spread over all ranks its sum is 128
//	table 1: rank 1 has [8 16] at [0 0]
//	[8, 16] R on (owner=1) of rank 1
//	    │ 0:16
//	────┼─────
//	0:8 │ 1
//	spread over all ranks its sum is 256
//	table 2: rank 2 has [8 16] at [0 0]
//	[8, 16] R on (owner=1) of rank 2
//	    │ 0:16
//	────┼─────
//	0:8 │ 2
//	spread over all ranks its sum is 384
//	table 3: rank 3 has [8 16] at [0 0]
//	[8, 16] R on (owner=1) of rank 3
//	    │ 0:16
//	────┼─────
//	0:8 │ 3
//	spread over all ranks its sum is 512
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
	runtime.Main(func(ctx context.Context, world *comm.Comm) error { return mem.Run(ctx, world, 4, tableWise) })
}

func tableWise(ctx context.Context, world *comm.Comm) error {
	all, err := dtensor.NewMesh(world, dtensor.Axis{Name: "ranks", Size: 4})
	if err != nil {
		return err
	}
	for i := range 4 {
		// Every rank makes the mesh, those outside it too.
		mesh, err := dtensor.NewMeshOf(world, []int{i}, dtensor.Axis{Name: "owner", Size: 1})
		if err != nil {
			return err
		}
		err = dtensor.Try(ctx, all, func() {
			table := dtensor.Full(mesh, tensor.Float32, float64(i+1), []int{8, 16}, layout.Replicate()) // [8, 16] on rank i
			spread := table.To(all, layout.Shard(0))                                                    // [8, 16] S(0) on all ranks
			sum := spread.Sum(nil, false).Full().Item()
			if world.Rank() != 0 {
				return
			}
			own := table.Layout()
			fmt.Printf("table %d: rank %d has %v at %v\n", i, mesh.Ranks()[0], own.LocalShape([]int{0}), own.Offset([]int{0}))
			fmt.Print(strings.ReplaceAll(visualize.Tensor(table).String(), "\n\n", "\n"))
			fmt.Printf("spread over all ranks its sum is %g\n", sum)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
