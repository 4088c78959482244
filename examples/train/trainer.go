package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/examples/train/internal/dataset"
	"github.com/gorun-spmd/gorun/examples/train/internal/progress"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/runtime"
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

	losses  []float64     // nats per token, one a step
	elapsed time.Duration // of training
	perStep int           // tokens
	rateOf  float64       // tokens per second, once trained
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
	return &trainer{
		o: o, mesh: mesh, model: m, data: data, sample: sample, params: params,
		optimizer: optim.NewAdamW(params, optim.AdamWConfig{Beta2: 0.95, WeightDecay: 0.1}),
		rate:      optim.WarmupCosine{Peak: o.rate, Floor: o.rate / 20, Warmup: ticks / 20, Total: ticks},
		perStep:   o.batch * o.context,
	}, nil
}

// train steps until the end of the run. If ctx is done it stops between two
// steps, all ranks at the same one, saves if there is a place to, and returns
// ctx's error.
func (t *trainer) train(ctx context.Context, world *comm.Comm, say func(string, ...any)) error {
	debug.FreeOSMemory() // what preparing the text took
	// A collective ends with its ctx; steps run under one that the user's
	// interrupt does not end, so that no rank is cut off in the middle.
	work := context.WithoutCancel(ctx)
	saver, err := newSaver(work, world, t)
	if err != nil {
		return err
	}
	first, err := saver.resume(work, runtime.Attempt(ctx) > 0, say)
	if err != nil {
		return err
	}
	var meter *progress.Meter
	if world.Rank() == 0 {
		columns, _ := runtime.Terminal(ctx)
		meter = progress.New(os.Stderr, progress.Options{Steps: t.o.steps, Limit: t.o.limit(), Columns: columns})
	}
	start, before := time.Now(), t.elapsed
	for step := first; ; step++ {
		t.elapsed = before + time.Since(start)
		share, stop, err := t.agree(work, world, step, ctx.Err() != nil)
		if err != nil {
			return err
		}
		if stop {
			return errors.Join(saver.save(work, step), saver.close(), ctx.Err())
		}
		if share >= 1 {
			break
		}
		runtime.SetStep(ctx, step)
		l, err := t.step(work, step, t.rate.At(int(share*ticks)))
		if err != nil {
			return err
		}
		if math.IsNaN(l) || math.IsInf(l, 0) {
			return fmt.Errorf("train: the loss of step %d is %v; lower -lr", step, l)
		}
		t.losses = append(t.losses, l)
		if meter != nil {
			meter.Update(progress.Status{Step: step + 1, Loss: l, Tokens: (step + 1 - first) * t.perStep})
		}
		if saver.due(step + 1) {
			if err := saver.save(work, step+1); err != nil {
				return err
			}
		}
	}
	if meter != nil {
		meter.Finish()
		t.rateOf = meter.TokensPerSecond()
	}
	return errors.Join(saver.save(work, len(t.losses)), saver.close())
}

// agree returns how much of the run is over and whether to stop, as rank 0 sees
// it: clocks differ, and so does when an interrupt arrives.
func (t *trainer) agree(ctx context.Context, world *comm.Comm, step int, interrupted bool) (share float64, stop bool, err error) {
	word := make([]float64, 2)
	if t.o.steps > 0 {
		word[0] = float64(step) / float64(t.o.steps)
	}
	if limit := t.o.limit(); limit > 0 {
		word[0] = max(word[0], t.elapsed.Seconds()/limit.Seconds())
	}
	if interrupted {
		word[1] = 1
	}
	err = comm.Broadcast(ctx, world, word, 0)
	return word[0], word[1] != 0, err
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
	fill(tensor.Data[int64](x), tensor.Data[int64](y))
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
