package main

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/gorun-spmd/gorun/checkpoint"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/examples/internal/training"
	"github.com/gorun-spmd/gorun/examples/train/internal/dataset"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
)

// A trainer trains one model on one text.
type trainer struct {
	o      *options
	mesh   *dtensor.Mesh
	model  *model
	data   *dataset.Dataset
	sample *dataset.Sampler

	params    []*dtensor.Tensor
	optimizer *optim.AdamW
	rate      optim.WarmupCosine // over ticks of the run

	state checkpoint.State
	run   training.Run
}

// ticks is how finely the schedule divides a run, whose end is a number of
// steps or a time.
const ticks = 1 << 20

func newTrainer(mesh *dtensor.Mesh, m *model, data *dataset.Dataset, o *options) (*trainer, error) {
	sample, err := dataset.NewSampler(data.Train, o.context, o.seed)
	if err != nil {
		return nil, err
	}
	params := m.params()
	t := &trainer{
		o: o, mesh: mesh, model: m, data: data, sample: sample, params: params,
		optimizer: optim.NewAdamW(params, optim.AdamWConfig{Beta2: 0.95, WeightDecay: 0.1}),
		rate:      optim.WarmupCosine{Peak: o.rate, Floor: o.rate / 20, Warmup: ticks / 20, Total: ticks},
	}
	t.state.AddTensors("model.", m.named())
	t.state.AddTensors("optimizer.", t.optimizer.State())
	t.run = training.Run{
		Program: "train", Advice: "lower -lr", Steps: o.steps, Limit: o.limit(), Unit: "tokens", PerStep: o.batch * o.context, Keep: o.keep,
		Step: func(ctx context.Context, step int, share float64) (float64, error) {
			return t.step(ctx, step, t.rate.At(int(share*ticks)))
		},
	}
	t.run.Keep.State = &t.state
	t.run.Keep.Settings = map[string]string{"seed": fmt.Sprint(o.seed), "batch": fmt.Sprint(o.batch), "context": fmt.Sprint(o.context)}
	return t, nil
}

// train steps until the end of the run; see training.Run.
func (t *trainer) train(ctx context.Context, world *comm.Comm, say func(string, ...any)) error {
	debug.FreeOSMemory() // what preparing the text took
	return t.run.Do(ctx, world, say)
}

// step makes one step of AdamW and returns the loss from before it.
func (t *trainer) step(ctx context.Context, step int, rate float64) (float64, error) {
	forward := func() *dtensor.Tensor {
		ids, targets := t.batch(func(ids, targets []int64) { dataset.FillBatch(t.sample, step, 0, ids, targets) })
		return t.model.loss(ids, targets, loss.Mean)
	}
	value, grads, err := dtensor.ValueAndGrad(ctx, forward, t.params...)
	if err != nil {
		return 0, err
	}
	if _, err := optim.ClipGradNorm(ctx, t.params, grads, t.o.clip); err != nil {
		return 0, err
	}
	if err := t.optimizer.Step(grads, rate); err != nil {
		return 0, err
	}
	return value.Local().Item(), nil
}

// batch makes a batch of windows, [B, T] S(0),R, which fill writes.
func (t *trainer) batch(fill func(ids, targets []int64)) (ids, targets *dtensor.Tensor) {
	dev := t.mesh.Device()
	x := tensor.New(dev, tensor.Int64, t.o.batch, t.o.context)
	y := tensor.NewLike(x)
	tensor.Edit(x, func(ids []int64) { tensor.Edit(y, func(targets []int64) { fill(ids, targets) }) })
	place := []layout.Placement{layout.Shard(0), layout.Replicate()}
	return dtensor.Distribute(t.mesh, x, place...), dtensor.Distribute(t.mesh, y, place...)
}

// heldOut returns the cross-entropy of the held-out text, in nats over all its
// targets.
func (t *trainer) heldOut(ctx context.Context) (nats float64, targets int, err error) {
	windows := dataset.NewWindows(t.data.HeldOut, t.o.context)
	for first := 0; first < windows.Len(); first += t.o.batch {
		err := dtensor.Try(ctx, t.mesh, func() {
			ids, targets := t.batch(func(ids, targets []int64) { dataset.FillWindows(windows, first, ids, targets) })
			nats += t.model.loss(ids, targets, loss.Sum).Full().Item()
		})
		if err != nil {
			return 0, 0, err
		}
	}
	return nats, windows.Targets(), nil
}
