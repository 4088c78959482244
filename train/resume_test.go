package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/checkpoint"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/programtest"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
)

// A run in float16 with batch norms that goes on has the weights, running averages, moments and scale of one that
// was not interrupted.
func TestBuffersAndScaleGoOn(t *testing.T) {
	type end struct {
		sum                 string
		value, mean, factor float64
	}
	fit := func(keep Keep) (result end, err error) {
		errs := commtest.Ranks(t.Context(), 2, func(ctx context.Context, world *comm.Comm) error {
			mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: 2})
			if err != nil {
				return err
			}
			init := nn.NewInit(mesh, 1)
			last := nn.NewBatchNorm(init, 4)
			model := nn.Sequential{nn.NewLinear(init, 4, 4, true, nn.Style{}), nn.NewBatchNorm(init, 4),
				nn.Sequential{nn.Func((*dtensor.Tensor).Gelu), last}}
			loss := func(step, _ int) *dtensor.Tensor {
				x := dtensor.Normal(mesh, dtensor.Key{Seed: uint64(step)}, 1, 2, []int{8, 4}, layout.Shard(0)).Cast(tensor.Float16)
				return model.Forward(x).Cast(tensor.Float32).Sub(x.Cast(tensor.Float32)).Square().Mean(nil, false)
			}
			scaler := optim.NewScaler(mesh, optim.ScalerConfig{Initial: 1 << 17, Interval: 3})
			r := Run{Steps: 8, Out: io.Discard, Keep: keep, Loss: loss, Params: model.Params(), Buffers: model.Buffers(), Scaler: scaler,
				Optimizer: optim.NewAdamW(nn.Tensors(model.Params()), optim.AdamWConfig{}), Rate: optim.Constant{Rate: 0.1}}
			if keep.Dir != "" && !keep.Resume {
				ctx = programtest.Interrupted(ctx, 5, &r.OnStep)
			}
			if err := r.Do(ctx, world, func(string, ...any) {}); err != nil {
				return err
			}
			sum, err := r.SHA256(ctx, world)
			if err != nil {
				return err
			}
			return dtensor.Try(ctx, mesh, func() {
				got := end{sum, loss(9, 0).Item(), last.RunningMean.Mean(nil, false).Item(), scaler.Factor()}
				if world.Rank() == 0 {
					result = got
				}
			})
		})
		return result, errs[0]
	}
	want, err := fit(Keep{})
	if err != nil || want.mean == 0 || want.factor == 1<<17 {
		t.Fatalf("%+v, %v", want, err)
	}
	keep := Keep{Dir: filepath.Join(t.TempDir(), "a")}
	if _, err := fit(keep); !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted: %v", err)
	}
	keep.Resume = true
	if got, err := fit(keep); err != nil || got != want {
		t.Errorf("resumed: %+v, %v, want %+v", got, err, want)
	}
}

// A run whose checkpoints would not have the running averages of a batch norm, or an average of the weights, is refused at the first
// step that changes them.
func TestForgottenBuffers(t *testing.T) {
	for _, c := range []struct {
		change func(*Run, nn.Sequential)
		want   string
	}{
		{func(*Run, nn.Sequential) {}, "mine: a step changes 4 tensors that are no parameters and that checkpoints would not have, " +
			"of a BatchNorm; give Buffers, as model.Buffers() or an average's State()"},
		{func(r *Run, model nn.Sequential) {
			var state checkpoint.State
			state.AddTensors("", model.Params())
			state.AddTensors("", model[0].(*nn.BatchNorm).Buffers())
			r.Keep.State = &state
		}, "mine: a step changes 2 tensors that are no parameters and that checkpoints would not have, " +
			"of a BatchNorm; add model.Buffers() or an average's State() to Keep.State"},
		{func(r *Run, model nn.Sequential) { r.Buffers = model.Buffers() }, "<nil>"},
		{func(r *Run, model nn.Sequential) {
			average := optim.NewSWA(nn.Tensors(model.Params()))
			r.Buffers, r.OnStep = model.Buffers(), func(steps int, _ float64) {
				if steps == 2 {
					average.Update()
				}
			}
		}, "mine: a step changes 4 tensors that are no parameters and that checkpoints would not have, " +
			"of a weight average; give Buffers, as model.Buffers() or an average's State()"},
		{func(r *Run, model nn.Sequential) {
			average := optim.NewEMA(nn.Tensors(model.Params()), 0.9)
			r.OnStep = func(int, float64) { average.Update() }
			r.Buffers = func(yield func(string, *dtensor.Tensor) bool) {
				model.Buffers()(yield)
				average.State()(yield)
			}
		}, "<nil>"},
		{func(r *Run, _ nn.Sequential) { r.Keep.Dir = "" }, "<nil>"},
	} {
		dir := filepath.Join(t.TempDir(), "a")
		errs := commtest.Ranks(t.Context(), 2, func(ctx context.Context, world *comm.Comm) error {
			mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: 2})
			if err != nil {
				return err
			}
			init := nn.NewInit(mesh, 1)
			model := nn.Sequential{nn.NewBatchNorm(init, 4), nn.NewBatchNorm(init, 4)}
			r := Run{Program: "mine", Steps: 2, Out: io.Discard, Params: model.Params(), Rate: optim.Constant{Rate: 0.1},
				Keep:      Keep{Dir: dir},
				Optimizer: optim.NewAdamW(nn.Tensors(model.Params()), optim.AdamWConfig{}),
				Loss: func(step, _ int) *dtensor.Tensor {
					x := dtensor.Normal(mesh, dtensor.Key{Seed: uint64(step)}, 1, 2, []int{8, 4}, layout.Shard(0))
					return model.Forward(x).Square().Mean(nil, false)
				}}
			c.change(&r, model)
			return r.Do(ctx, world, func(string, ...any) {})
		})
		for rank, err := range errs {
			text, _, located := strings.Cut(fmt.Sprint(err), " (at train/resume_test.go:")
			if text != c.want || located != (err != nil) {
				t.Errorf("rank %d: %v, want %s", rank, err, c.want)
			}
		}
	}
}
