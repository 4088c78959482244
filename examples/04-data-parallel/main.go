// Command 04-data-parallel fits a line to points. Each rank has a part of the
// points and the whole of the line; the gradients are summed over the ranks.
//
//	gorun -np 4 ./examples/04-data-parallel
//
// Output:
//
//	y = 2.00·x + 0.50
package main

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/runtime"
	"github.com/gorun-spmd/gorun/tensor"
)

func main() { runtime.Main(fit) }

func fit(ctx context.Context, world *comm.Comm) error {
	mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: world.Size()})
	if err != nil {
		return err
	}
	const points = 1000
	xs := dtensor.Uniform(mesh, dtensor.Key{Seed: 1}, -1, 1, []int{points, 1}, layout.Shard(0)) // [N, 1] S(0)
	ys := xs.Scale(2).AddScalar(0.5)                                                            // [N, 1] S(0)
	slope := dtensor.Zeros(mesh, tensor.Float32, []int{1, 1}, layout.Replicate())               // [1, 1] R
	offset := dtensor.Zeros(mesh, tensor.Float32, []int{1}, layout.Replicate())                 // [1] R
	params := []*dtensor.Tensor{slope, offset}
	opt := optim.NewSGD(params, optim.SGDConfig{Momentum: 0.9})

	for range 200 {
		_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			off := xs.Linear(slope, offset).Sub(ys) // [N, 1] S(0)
			return off.Square().Mean(nil, false)    // []
		}, params...)
		if err != nil {
			return err
		}
		if err := opt.Step(grads, 0.1); err != nil {
			return err
		}
	}
	if world.Rank() == 0 {
		fmt.Printf("y = %.2f·x + %.2f\n", slope.Item(), offset.Item())
	}
	return nil
}
