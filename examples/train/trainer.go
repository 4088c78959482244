package main

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/data"
	"github.com/gorun-spmd/gorun/data/corpus"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/train"
)

// A trainer trains one model on one text.
type trainer struct {
	o      *options
	mesh   *dtensor.Mesh
	model  *model
	text   *corpus.Dataset
	params []*dtensor.Tensor
	run    train.Run
}

// newTrainer makes a trainer of tokens, which are of text.
func newTrainer(mesh *dtensor.Mesh, m *model, text *corpus.Dataset, tokens []int32, o *options) (*trainer, error) {
	sample, err := data.NewSampler(tokens, o.context, o.seed)
	if err != nil {
		return nil, err
	}
	t := &trainer{o: o, mesh: mesh, model: m, text: text, params: m.params()}
	t.run = train.Run{
		Program: "train", Advice: "lower -lr", Steps: o.steps, Limit: o.limit(), Unit: "tokens", PerStep: o.batch * o.context,
		Accumulate: o.micro,
		Loss: func(step, part int) *dtensor.Tensor {
			windows := o.batch / o.micro
			mean := m.loss(t.batch(windows, func(ids, targets []int64) { data.FillBatch(sample, step, part*windows, ids, targets) }))
			if o.micro == 1 {
				return mean
			}
			return mean.Scale(1 / float64(o.micro))
		},
		Params:    m.named(),
		Optimizer: optim.NewAdamW(t.params, optim.AdamWConfig{Beta2: 0.95, WeightDecay: 0.1}),
		Rate:      optim.WarmupCosine{Peak: o.rate, Floor: o.rate / 20, Warmup: train.Ticks / 20, Total: train.Ticks},
		Clip:      o.clip, Metrics: o.metrics, Keep: o.keep,
	}
	t.run.Keep.Settings = map[string]string{"seed": fmt.Sprint(o.seed), "batch": fmt.Sprint(o.batch), "context": fmt.Sprint(o.context),
		"ngram": fmt.Sprint(max(1, o.ngram))}
	return t, nil
}

// batch makes a batch of so many windows, [B, T] S(0),R, which fill writes.
func (t *trainer) batch(windows int, fill func(ids, targets []int64)) (ids, targets *dtensor.Tensor) {
	dev := t.mesh.Device()
	x := tensor.New(dev, tensor.Int64, windows, t.o.context)
	y := tensor.NewLike(x)
	tensor.Edit(x, func(ids []int64) { tensor.Edit(y, func(targets []int64) { fill(ids, targets) }) })
	place := []layout.Placement{layout.Shard(0), layout.Replicate()}
	return dtensor.Distribute(t.mesh, x, place...), dtensor.Distribute(t.mesh, y, place...)
}

// heldOut returns the cross-entropy of the held-out text, in nats over all its
// targets.
func (t *trainer) heldOut(ctx context.Context) (nats float64, targets int, err error) {
	windows := data.NewWindows(t.text.HeldOut, t.o.context)
	for first := 0; first < windows.Len(); first += t.o.batch {
		err := dtensor.Try(ctx, t.mesh, func() {
			ids, targets := t.batch(t.o.batch, func(ids, targets []int64) { data.FillWindows(windows, first, ids, targets) })
			nats += t.model.nats(ids, targets).Item()
		})
		if err != nil {
			return 0, 0, err
		}
	}
	return nats, windows.Targets(), nil
}
