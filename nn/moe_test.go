package nn_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/tensor"
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

// Four ranks, along whichever axes they divide the batch and the experts, compute a quarter of the slots each, also in
// float16, and get what one rank gets.
func TestMoEDividesItsWork(t *testing.T) {
	for _, dt := range []tensor.DType{tensor.Float32, tensor.Float16} {
		var want []float32
		for _, c := range []struct {
			axes, experts string // of one letter each
			slots         int    // that a rank computes: 48 tokens choose 2 of 4 experts with room for 24
		}{{"d", "", 96}, {"de", "e", 24}, {"ed", "e", 24}, {"de", "", 24}, {"dfe", "e", 12}} {
			size := 1
			if len(c.axes) > 1 {
				size = 1 << len(c.axes)
			}
			commtest.Run(t, size, func(ctx context.Context, world *comm.Comm) error {
				var axes []dtensor.Axis
				for _, name := range c.axes {
					axes = append(axes, dtensor.Axis{Name: string(name), Size: min(size, 2)})
				}
				mesh, err := dtensor.NewMesh(world, axes...)
				if err != nil {
					return err
				}
				computed := 0
				m := nn.NewMoE(nn.NewInit(mesh, 1), nn.MoEConfig{Width: 16, Hidden: 8, Experts: 4, Axis: c.experts, Capacity: 1,
					Activation: func(x *dtensor.Tensor) *dtensor.Tensor {
						computed += x.Local().Numel() / 8
						return x.Gelu()
					}})
				x := wave(mesh, 1, []int{16, 3, 16}, mesh.Every(layout.Shard(0))...)
				params := append(nn.Tensors(m.Params()), x)
				value, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
					y, balance := m.Forward(x.Cast(dt))
					return y.Cast(tensor.Float32).Square().Sum(nil, false).Add(balance)
				}, params...)
				if err != nil {
					return err
				}
				if computed != c.slots {
					return fmt.Errorf("%+v: a rank computes %d slots", c, computed)
				}
				got := tensor.ToSlice[float32](value.Full())
				for _, g := range grads {
					got = append(got, tensor.ToSlice[float32](g.Dense().Full())...)
				}
				if size == 1 {
					want = got
				}
				tolerance := map[tensor.DType]float64{tensor.Float32: 1e-5, tensor.Float16: 0x1p-8}[dt]
				for i, v := range got {
					if d := math.Abs(float64(v - want[i])); !(d <= tolerance*(1+math.Abs(float64(want[i])))) {
						return fmt.Errorf("%v, %+v: number %d is %v, want %v", dt, c, i, v, want[i])
					}
				}
				return nil
			})
		}
	}
}

func TestMoERefusals(t *testing.T) {
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		for _, c := range []nn.MoEConfig{{Width: 4, Hidden: 4}, {Experts: 1, Width: 4, Hidden: 4},
			{Experts: 2, Capacity: -1, Width: 4, Hidden: 4}, {Experts: 2, Width: 4}, {Experts: 2, Hidden: 4}} {
			err := dtensor.Try(ctx, mesh, func() { nn.NewMoE(nn.NewInit(mesh, 1), c) })
			if err == nil || !strings.HasPrefix(err.Error(), "nn: NewMoE: ") {
				return fmt.Errorf("%+v: %v", c, err)
			}
		}
		return nil
	})
}

// A mixture of float64 is as exact as float64: two experts that take every token are the sum of both, weighted by the
// router's probabilities.
func TestMoEOfFloat64(t *testing.T) {
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		init := nn.NewInit(mesh, 1)
		init.DType = tensor.Float64
		m := nn.NewMoE(init, nn.MoEConfig{Width: 4, Hidden: 5, Experts: 2, Capacity: 2, Axis: "dp"})
		x := wave(mesh, 1, []int{3, 2, 4}, batch()...).Cast(tensor.Float64)
		return dtensor.Try(ctx, mesh, func() {
			probs := x.Linear(m.Router.Weight, nil).Softmax(-1)
			want := dtensor.Einsum("bte,ecf,btef->btc", probs, m.Down, dtensor.Einsum("btc,efc->btef", x, m.Up).Gelu())
			got, balance := m.Forward(x)
			if off := got.Sub(want).Abs().Amax(nil, false).Item(); !(off <= 1e-14) {
				dtensor.Throw(fmt.Errorf("off by %v", off))
			}
			if off := balance.AddScalar(-1).Item(); balance.DType() != tensor.Float64 || !(math.Abs(off) <= 1e-14) {
				dtensor.Throw(fmt.Errorf("the loss of a balanced load is %v, 1 and %v", balance.DType(), off))
			}
		})
	})
}
