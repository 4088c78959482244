// Command 06-embedding looks up rows of a table that no rank holds as a whole.
//
//	gorun -np 4 ./examples/06-embedding
//
// Output:
//
//	the rows' first features are 990 10 500
//	the gradient has 3 rows of 1000
package main

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/runtime"
	"github.com/gorun-spmd/gorun/tensor"
)

func main() { runtime.Main(lookup) }

func lookup(ctx context.Context, world *comm.Comm) error {
	mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "tp", Size: world.Size()})
	if err != nil {
		return err
	}
	const rows, dim = 1000, 4
	cpu := mesh.Device()
	var table *embedding.Table // row r holds r in all features; each rank has some of the rows
	err = dtensor.Try(ctx, mesh, func() {
		numbers := tensor.Expand(tensor.Arange(cpu, tensor.Float32, 0, rows).Reshape(rows, 1), rows, dim)
		weight := dtensor.Distribute(mesh, numbers, layout.Shard(0)) // [1000, 4] S(0)
		dtensor.Keep(weight)
		table = embedding.TableOf(weight, embedding.Options{Table: "numbers"})
	})
	if err != nil {
		return err
	}
	ids := dtensor.Distribute(mesh, tensor.FromSlice(cpu, []int64{990, 10, 500}, 3), layout.Replicate())
	var found []float32
	_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		h := table.Lookup(ids) // [3, 4] MaskP: each row on the one rank that has it, no communication yet
		h = h.Reduced()        // [3, 4] R: one collective
		found = tensor.ToSlice[float32](h.Local())
		return h.Sum(nil, false)
	}, table.Weight())
	if err != nil {
		return err
	}
	// The gradient holds the touched rows, never a table of zeros.
	touched, _ := grads[0].Rows()
	count := []int64{int64(touched.Index.Numel())}
	if err := comm.AllReduce(ctx, world, count, comm.Sum); err != nil {
		return err
	}
	if world.Rank() == 0 {
		fmt.Println("the rows' first features are", found[0], found[dim], found[2*dim])
		fmt.Println("the gradient has", count[0], "rows of", rows)
	}
	return nil
}
