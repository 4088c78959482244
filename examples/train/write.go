package main

import (
	"context"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/examples/train/internal/sample"
	"github.com/gorun-spmd/gorun/examples/train/internal/tokenizer"
	"github.com/gorun-spmd/gorun/tensor"
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
	tokens := []uint16{tokenizer.EndOfText}
	tokens = tokenizer.NewEncoder(t.data.Tokenizer).Encode(tokens, []byte(t.o.prompt))
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
	return sample.Format(t.data.Tokenizer.Decode(nil, tokens[1:]), columns), nil
}

// next draws the token that follows a window.
func (t *trainer) next(ctx context.Context, window []uint16, draw *sample.Sampler, position int) (uint16, error) {
	ids := make([]int64, len(window))
	for i, id := range window {
		ids[i] = int64(id)
	}
	var next int
	var bad error
	err := dtensor.Try(ctx, t.mesh, func() {
		x := tensor.FromSlice(t.mesh.Device(), ids, 1, len(ids))
		whole := dtensor.Distribute(t.mesh, x, layout.Replicate(), layout.Replicate())
		last := t.model.hidden(whole).Narrow(1, len(ids)-1, 1) // [1, 1, C]
		logits := last.Linear(t.model.head, nil).Full()        // [1, 1, V]
		next, bad = draw.Next(tensor.Read[float32](tensor.Widen(logits)), position)
	})
	if err == nil {
		err = bad
	}
	return uint16(next), err
}
