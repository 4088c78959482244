// Command 07-vocabulary-loss takes the cross-entropy of logits that are divided
// by classes. They are never gathered: one collective of a few numbers for each
// position, and none for the gradient.
//
//	gorun -np 4 ./examples/07-vocabulary-loss
//
// Output:
//
//	loss 11.28 over 50000 classes
//	its gradient is [64 50000] S(1)
package main

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/runtime"
	"github.com/gorun-spmd/gorun/tensor"
)

func main() { runtime.Main(train) }

func train(ctx context.Context, world *comm.Comm) error {
	mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "tp", Size: world.Size()})
	if err != nil {
		return err
	}
	const positions, classes = 64, 50_000
	logits := dtensor.Normal(mesh, dtensor.Key{Seed: 1}, 0, 1, []int{positions, classes}, layout.Shard(1)) // [64, 50000] S(1)
	targets := dtensor.Arange(mesh, tensor.Int64, 0, positions, layout.Replicate())                        // [64] R
	value, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		return loss.CrossEntropy(logits, targets, loss.Options{}) // [] R
	}, logits)
	if err != nil {
		return err
	}
	if world.Rank() == 0 {
		g := grads[0].Dense()
		fmt.Printf("loss %.2f over %d classes\n", value.Item(), classes)
		fmt.Println("its gradient is", g.Shape(), g.Placements()[0])
	}
	return nil
}
