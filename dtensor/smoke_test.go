package dtensor_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

func TestSmoke(t *testing.T) {
	commtest.Run(t, 4, func(ctx context.Context, world *comm.Comm) error {
		mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: 2}, dtensor.Axis{Name: "tp", Size: 2})
		if err != nil {
			return err
		}
		S, R := layout.Shard, layout.Replicate()
		x := tensor.FromSlice(mesh.Device(), []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 3, 4)
		a := dtensor.Distribute(mesh, x, S(0), S(1))
		w := dtensor.Distribute(mesh, x, R, S(0))
		v, g, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			return a.Linear(w, nil).Gelu().Add(a.MatMul(a.Transpose(0, 1))).Sum(nil, false)
		}, a, w)
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(v, v.Local(), g[0].Dense(), g[1].Dense())
		}
		fmt.Println(g[0].Dense().Full(), g[1].Dense().Full())
		return nil
	})
}
