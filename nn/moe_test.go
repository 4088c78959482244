package nn_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/nn"
)

// Experts on four ranks: rows go to them and back once forward and once backward, and no
// expert's weights or gradients leave their rank.
func TestMoECounts(t *testing.T) {
	commtest.Run(t, 4, func(ctx context.Context, world *comm.Comm) error {
		mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: 4}, dtensor.Axis{Name: "tp", Size: 1})
		if err != nil {
			return err
		}
		m := nn.NewMoE(nn.NewInit(mesh, 1), nn.MoEConfig{Width: 64, Hidden: 128, Experts: 8, Axis: "dp"})
		x := wave(mesh, 1, []int{8, 4, 64}, batch()...)
		recorder := world.Record()
		_, _, err = dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			y, balance := m.Forward(x)
			return y.Square().Mean(nil, false).Add(balance.Scale(0.01))
		}, append(nn.Tensors(m.Params()), x)...)
		recorder.Stop()
		if err != nil {
			return err
		}
		for cause, want := range map[string]int{"Lookup: rows": 2, "Lookup: gradients of rows": 2} {
			if n, _ := meshtest.Calls(recorder.Events(), cause); n != want {
				return fmt.Errorf("%d calls for %q, want %d: %v", n, cause, want, recorder.Stats().Causes)
			}
		}
		for _, e := range recorder.Events() {
			if e.Bytes > 20000 { // an expert's weights have 32768
				return fmt.Errorf("a call sends %d bytes: %v", e.Bytes, recorder.Stats().Causes)
			}
		}
		return nil
	})
}

func TestMoERefusals(t *testing.T) {
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		for _, c := range []nn.MoEConfig{{}, {Experts: 1}, {Experts: 2, Capacity: -1}} {
			c.Width, c.Hidden = 4, 4
			err := dtensor.Try(ctx, mesh, func() { nn.NewMoE(nn.NewInit(mesh, 1), c) })
			if err == nil || !strings.HasPrefix(err.Error(), "nn: NewMoE: ") {
				return fmt.Errorf("%+v: %v", c, err)
			}
		}
		return nil
	})
}
