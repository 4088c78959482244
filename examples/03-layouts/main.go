// Command 03-layouts divides a tensor over a mesh of ranks and changes how it is
// divided. The tensor stays the same; only who holds what changes.
//
//	gorun -np 4 ./examples/03-layouts
//
// Output:
//
//	the sum of x is 66, divided by rows
//	the sum of x is 66, divided by columns
//	the sum of x is 66, on every rank
package main

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/runtime"
	"github.com/gorun-spmd/gorun/tensor"
)

func main() { runtime.Main(layouts) }

func layouts(ctx context.Context, world *comm.Comm) error {
	mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "ranks", Size: world.Size()})
	if err != nil {
		return err
	}
	// What math throws, a wrong shape or layout, Try returns as an error.
	return dtensor.Try(ctx, mesh, func() {
		whole := tensor.Arange(mesh.Device(), tensor.Float32, 0, 12).Reshape(3, 4)
		x := dtensor.Distribute(mesh, whole, layout.Shard(0)) // [3, 4] S(0): rows
		show(world, x, "divided by rows")
		x = x.Redistribute(layout.Shard(1)) // [3, 4] S(1): columns, by one all-to-all
		show(world, x, "divided by columns")
		x = x.Redistribute(layout.Replicate()) // [3, 4] R: by one all-gather
		show(world, x, "on every rank")
	})
}

// show prints the sum of all elements, which does not depend on the layout. A
// sum over a sharded dimension is Partial; Full reduces it.
func show(world *comm.Comm, x *dtensor.Tensor, how string) {
	sum := x.Sum(nil, false).Full().Item()
	if world.Rank() == 0 {
		fmt.Printf("the sum of x is %g, %s\n", sum, how)
	}
}
