package nn_test

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/nn"
)

// Two ranks divide the heads of the attention and the hidden features of the MLP.
func ExampleBlock() {
	meshtest.Example(2, func(ctx context.Context, mesh *dtensor.Mesh) error {
		block := nn.NewBlock(nn.NewInit(mesh, 1), nn.BlockConfig{Width: 8, Heads: 2, TensorAxis: "tp"})
		x := dtensor.Normal(mesh, dtensor.Key{Seed: 2}, 0, 1, []int{2, 5, 8}, layout.Replicate()) // [B, T, C]
		y := block.Forward(x)
		if mesh.Comm().Rank() == 0 {
			for name, p := range block.Params() {
				fmt.Println(name, p.Layout())
			}
			fmt.Println(y.Layout())
		}
		return nil
	})
	// Output:
	// norm1.weight [8] R
	// attention.q.weight [8, 8] S(0)
	// attention.k.weight [8, 8] S(0)
	// attention.v.weight [8, 8] S(0)
	// attention.out.weight [8, 8] S(1)
	// norm2.weight [8] R
	// mlp.up.weight [32, 8] S(0)
	// mlp.down.weight [8, 32] S(1)
	// [2, 5, 8] R
}
