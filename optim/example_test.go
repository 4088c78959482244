package optim_test

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
)

// Ten steps towards the least (p-3)², p on two ranks.
func Example() {
	meshtest.Example(2, func(ctx context.Context, mesh *dtensor.Mesh) error {
		p := dtensor.Zeros(mesh, tensor.Float32, []int{4}, layout.Shard(0))
		params := []*dtensor.Tensor{p}
		opt := optim.NewSGD(params, optim.SGDConfig{})
		for range 10 {
			_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
				d := p.AddScalar(-3)
				return d.Mul(d).Sum(nil, false)
			}, params...)
			if err != nil {
				return err
			}
			if _, err := optim.ClipGradNorm(ctx, params, grads, 100); err != nil {
				return err
			}
			if err := opt.Step(grads, 0.25); err != nil {
				return err
			}
		}
		if mesh.Comm().Rank() == 0 {
			fmt.Printf("%.2f\n", tensor.ToSlice[float32](p.Local()))
		}
		return nil
	})
	// Output: [3.00 3.00]
}
