// Command 05-tensor-parallel divides the features of a hidden layer over the
// ranks. The layer and its gradients cost one all-reduce each way.
//
//	gorun -np 4 ./examples/05-tensor-parallel
//
// Output:
//
//	hidden is [64 32] S(1)
//	loss 0.0001 after 300 steps
package main

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/runtime"
)

func main() { runtime.Main(train) }

func train(ctx context.Context, world *comm.Comm) error {
	mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "tp", Size: world.Size()})
	if err != nil {
		return err
	}
	init := nn.NewInit(mesh, 1)
	up := nn.NewLinear(init, 8, 32, true, nn.Column("tp")) // [32, 8] S(0): each rank some features
	down := nn.NewLinear(init, 32, 1, false, nn.Row("tp")) // [1, 32] S(1)

	x := dtensor.Normal(mesh, dtensor.Key{Seed: 2}, 0, 1, []int{64, 8}, layout.Replicate()) // [64, 8] R
	y := x.Sum([]int{1}, true).Tanh()                                                       // [64, 1] R: what to learn
	params := nn.Tensors(nn.Join([]string{"up", "down"}, up, down))
	opt := optim.NewAdamW(params, optim.AdamWConfig{})
	var loss float64
	for step := range 300 {
		value, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			hidden := up.Forward(x).Gelu()          // [64, 32] S(1)
			guess := down.Forward(hidden).Reduced() // [64, 1]  P(sum) → R
			if step == 0 && world.Rank() == 0 {
				fmt.Println("hidden is", hidden.Shape(), hidden.Placements()[0])
			}
			return guess.Sub(y).Square().Mean(nil, false)
		}, params...)
		if err != nil {
			return err
		}
		if err := opt.Step(grads, 0.01); err != nil {
			return err
		}
		loss = value.Item()
	}
	if world.Rank() == 0 {
		fmt.Printf("loss %.4f after 300 steps\n", loss)
	}
	return nil
}
