package main

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/tensor"
)

// A sampling says how generate chooses tokens.
type sampling struct {
	temperature float64 // 0: always the likeliest
	topK        int     // among how many of the likeliest; 0: among all
	topP        float64 // only among the likeliest that have this probability together; 0: among all
	seed        uint64
	recompute   bool // without a cache: every step computes with the whole text
}

// generate returns n tokens that follow prompt, the same on every rank. Each step computes
// with the token before alone; what attention needs of the others is in the caches.
func (m *model) generate(ctx context.Context, prompt []int64, n int, s sampling) ([]int64, error) {
	if len(prompt) == 0 || len(prompt)+n > m.c.positions {
		return nil, fmt.Errorf("gpt2: a prompt of %d tokens and %d more: the model has %d positions, and needs one token to begin with",
			len(prompt), n, m.c.positions)
	}
	for i, id := range prompt {
		if id < 0 || int(id) >= m.c.vocab {
			return nil, fmt.Errorf("gpt2: token %d of the prompt is %d; the model has %d tokens, from 0 on", i, id, m.c.vocab)
		}
	}
	var caches nn.KVCaches
	if !s.recompute {
		caches = make(nn.KVCaches, m.c.layers)
	}
	text := append([]int64{}, prompt...)
	fresh := text // what the model has not seen
	for i := range n {
		err := dtensor.Try(ctx, m.mesh, func() {
			ids := dtensor.Distribute(m.mesh, tensor.FromSlice(m.mesh.Device(), fresh, 1, len(fresh)), m.mesh.Every(layout.Replicate())...)
			last := m.hidden(ids, caches).Narrow(1, len(fresh)-1, 1).Flatten(0, 1) // [1, C]
			logits := last.Linear(m.head, nil)                                     // [1, V] R,S(1)
			var next *dtensor.Tensor
			if s.temperature > 0 {
				next = loss.Sample(logits, loss.SampleOptions{Key: dtensor.Key{Seed: s.seed, Stream: uint64(i)}, Temperature: s.temperature,
					TopK: s.topK, TopP: s.topP})
			} else {
				next = loss.Argmax(logits)
			}
			text = append(text, tensor.ToSlice[int64](next.Full())[0])
		})
		if err != nil {
			return nil, err
		}
		if fresh = text; !s.recompute {
			fresh = text[len(text)-1:]
		}
	}
	return text[len(prompt):], nil
}
