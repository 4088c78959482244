package main

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/data"
	"github.com/gorun-spmd/gorun/data/corpus"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/optim"
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
	faulty, _ := mesh.Device().(*faultyDevice)
	t.run = train.Run{
		Program: "train", Advice: "lower -lr", Steps: o.steps, Limit: o.limit(), Unit: "tokens", PerStep: o.batch * o.context,
		Accumulate: o.micro,
		Loss: func(step, part int) *dtensor.Tensor {
			if faulty != nil && part == 0 {
				faulty.begin(step + 1)
			}
			windows := o.batch / o.micro
			mean := m.loss(sample.Batch(mesh, "dp", step, part*windows, windows))
			if o.micro == 1 {
				return mean
			}
			return mean.Scale(1 / float64(o.micro))
		},
		Params:    m.named(),
		Optimizer: optim.NewAdamW(t.params, optim.AdamWConfig{Beta2: 0.95, WeightDecay: 0.1}),
		Rate:      optim.WarmupCosine{Peak: o.rate, Floor: o.rate / 20, Warmup: train.Ticks / 20, Total: train.Ticks},
		Sealed:    mesh.SameBits(),
		Clip:      o.clip, Metrics: o.metrics, Keep: o.keep,
	}
	t.run.Keep.Settings = map[string]string{"seed": fmt.Sprint(o.seed), "batch": fmt.Sprint(o.batch), "context": fmt.Sprint(o.context),
		"ngram": fmt.Sprint(max(1, o.ngram))}
	return t, nil
}

// heldOut returns the cross-entropy of the held-out text, in nats over all its
// targets.
func (t *trainer) heldOut(ctx context.Context) (nats float64, targets int, err error) {
	windows := data.NewWindows(t.text.HeldOut, t.o.context)
	for first := 0; first < windows.Len(); first += t.o.batch {
		err := dtensor.Try(ctx, t.mesh, func() {
			nats += t.model.nats(windows.Batch(t.mesh, "dp", first, t.o.batch)).Item()
		})
		if err != nil {
			return 0, 0, err
		}
	}
	return nats, windows.Targets(), nil
}
