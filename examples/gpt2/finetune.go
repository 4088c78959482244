package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/gorun-spmd/gorun/data"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/optim"
)

// A tuning says how finetune trains.
type tuning struct {
	tokens         []int32 // the text
	batch, context int     // windows a step, and tokens of each
	steps          int
	rate           float64
	seed           uint64
	report         func(step int, loss float64) // called on every rank
}

// finetune trains the model further with AdamW. The batch is divided over dp, heads, hidden
// features and vocabulary over tp.
func (m *model) finetune(ctx context.Context, o tuning) error {
	sampler, err := data.NewSampler(o.tokens, o.context, o.seed)
	if err != nil {
		return err
	}
	params := nn.Tensors(m.Params())
	optimizer := optim.NewAdamW(params, optim.AdamWConfig{})
	rate := optim.WarmupCosine{Peak: o.rate, Floor: o.rate / 10, Warmup: o.steps / 20, Total: o.steps}
	for step := range o.steps {
		value, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			return m.loss(sampler.Batch(m.mesh, "dp", step, 0, o.batch))
		}, params...)
		if err != nil {
			return err
		}
		if _, err := optim.ClipGradNorm(ctx, params, grads, 1); errors.Is(err, optim.ErrNotFinite) {
			return fmt.Errorf("gpt2: step %d: lower -lr: %w", step, err)
		} else if err != nil {
			return err
		}
		if err := optimizer.Step(grads, rate.At(step)); err != nil {
			return err
		}
		o.report(step, value.Item())
	}
	return nil
}
