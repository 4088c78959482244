package train_test

import (
	"context"
	"fmt"
	"io"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/mem"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/train"
)

// A linear model learns y = 2x₀ - x₁, on a world of one rank; runtime.Main gives a program
// that of its job.
func ExampleRun() {
	ctx, world := context.Background(), comm.NewWorld(mem.Open(1)[0])
	mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	var model *nn.Linear
	var x, y *dtensor.Tensor // [4, 2] S(0)   [4, 1] S(0)
	err = dtensor.Try(ctx, mesh, func() {
		model = nn.NewLinear(nn.NewInit(mesh, 1), 2, 1, false, nn.Style{})
		x = dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), []float32{1, 0, 0, 1, 1, 1, 2, 1}, 4, 2), layout.Shard(0))
		y = dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), []float32{2, -1, 1, 3}, 4, 1), layout.Shard(0))
		dtensor.Keep(x, y, model.Weight)
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	run := train.Run{
		Program: "linear", Advice: "lower the rate",
		Loss:      func(_, _ int) *dtensor.Tensor { return model.Forward(x).Sub(y).Square().Mean(nil, false) },
		Params:    model.Params(),
		Optimizer: optim.NewSGD(nn.Tensors(model.Params()), optim.SGDConfig{Momentum: 0.9}),
		Rate:      optim.WarmupCosine{Peak: 0.1, Total: train.Ticks},
		Steps:     100,
		Out:       io.Discard, // of progress
	}
	if err := run.Do(ctx, world, nil); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("the weights are %.2f\n", tensor.ToSlice[float32](model.Weight.Full()))
	// Output: the weights are [2.00 -1.00]
}
