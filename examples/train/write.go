package main

import (
	"context"

	"github.com/gorun-spmd/gorun/data/tokenizer"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/train/sample"
)

// columns is how wide the text sample is laid out.
const columns = 100

// write lets the model go on from the prompt. Every rank draws the same tokens,
// as it sees the same logits; the batch is one window, replicated.
func (t *trainer) write(ctx context.Context) (string, error) {
	if t.o.sample == 0 {
		return "", nil
	}
	draw, err := sample.New(sample.Options{Temperature: 0.8, TopK: 40}, t.o.seed)
	if err != nil {
		return "", err
	}
	tokens := []int32{tokenizer.EndOfText}
	tokens = tokenizer.NewEncoder(t.text.Tokenizer).Encode(tokens, []byte(t.o.prompt))
	for i := range t.o.sample {
		next, err := t.next(ctx, tokens[max(0, len(tokens)-t.o.context):], draw, i)
		if err != nil {
			return "", err
		}
		if next == tokenizer.EndOfText {
			break
		}
		tokens = append(tokens, next)
	}
	return sample.Format(t.text.Tokenizer.Decode(nil, tokens[1:]), columns), nil
}

// next draws the token that follows a window.
func (t *trainer) next(ctx context.Context, window []int32, draw *sample.Sampler, position int) (int32, error) {
	ids := make([]int64, len(window))
	for i, id := range window {
		ids[i] = int64(id)
	}
	var next int
	var bad error
	err := dtensor.Try(ctx, t.mesh, func() {
		x := tensor.FromSlice(t.mesh.Device(), ids, 1, len(ids))
		whole := dtensor.Distribute(t.mesh, x, layout.Replicate(), layout.Replicate())
		logits := t.model.logits(whole, len(ids)-1).Full() // [1, 1, V]
		next, bad = draw.Next(tensor.Read[float32](tensor.Widen(logits)), position)
	})
	if err == nil {
		err = bad
	}
	return int32(next), err
}
