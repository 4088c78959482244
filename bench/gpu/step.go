package main

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
)

// trainingStep is a step of a decoder in the size of GPT-2 small, 12 blocks of 768
// features and 12 heads, on 8 windows of 1024 tokens of 50304: forward, backward, the
// norm of the gradients, AdamW. It counts 6 operations for each parameter and token, and
// those of attention.
func trainingStep(ctx context.Context, mesh *dtensor.Mesh, dt tensor.DType, scale int) measurement {
	shrink := min(scale, 16)
	layers, width, heads := max(12/shrink, 1), 768/shrink, 12/min(shrink, 4)
	batch, window, vocab := 8, max(1024/scale, 1), 50304/scale
	perToken := 6*(12*layers*width*width+vocab*width) + 6*layers*window*width
	name := fmt.Sprint("training step of a transformer, ", dt)
	return measurement{name: name, flops: float64(perToken * batch * window), make: func() func() error {
		init := nn.NewInit(mesh, 1)
		init.DType = dt
		whole := layout.Replicate()
		tokens := embedding.NewTable(mesh, embedding.Config{Name: "tokens", Rows: vocab, Dim: width, DType: dt, Layout: embedding.RowWise("all"),
			Std: 0.02})
		positions := init.Normal(0.02, []int{window, width}, "", whole)
		params := []*dtensor.Tensor{tokens.Weight(), positions}
		var blocks []*nn.Block
		for range layers {
			b := nn.NewBlock(init, nn.BlockConfig{Width: width, Heads: heads})
			blocks, params = append(blocks, b), append(params, nn.Tensors(b.Params())...)
		}
		norm, head := nn.NewRMSNorm(init, width), init.Normal(0.02, []int{vocab, width}, "", whole)
		params = append(params, norm.Weight, head)
		dtensor.Keep(params...)
		list := make([]int64, batch*window)
		for i := range list {
			list[i] = int64(i) * 2654435761 % int64(vocab)
		}
		ids := dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), list, batch, window), whole)
		opt := optim.NewAdamW(params, optim.AdamWConfig{WeightDecay: 0.1})
		forward := func() *dtensor.Tensor {
			h := tokens.Lookup(ids).Reduced().Add(positions)
			for _, b := range blocks {
				h = b.Forward(h)
			}
			return loss.LinearCrossEntropy(norm.Forward(h), head, ids, loss.Options{})
		}
		return func() error {
			_, grads, err := dtensor.ValueAndGrad(ctx, forward, params...)
			if err != nil {
				return err
			}
			if _, err := optim.ClipGradNorm(ctx, params, grads, 1); err != nil {
				return err
			}
			return opt.Step(grads, 1e-4)
		}
	}}
}
