package sample

import (
	"context"
	"errors"
	"fmt"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/tensor"
)

// Generate returns n tokens that follow a prompt, the same on every rank of the mesh and with
// any number of them. next returns the logits of the token after ids: of the whole prompt
// first, then of the token that was chosen last, alone. A model has the others in its
// nn.KVCaches; with o.Whole ids are the whole text each time, for a model without.
//
//	ids [1, T] int64 R   →   [1, V], in any layout
//
// Logits that are divided by classes stay so. Generate is collective over the mesh.
func Generate(ctx context.Context, mesh *dtensor.Mesh, prompt []int32, n int, o Options, seed uint64,
	next func(ids *dtensor.Tensor) *dtensor.Tensor) ([]int32, error) {
	if len(prompt) == 0 {
		return nil, errors.New("sample: Generate: there is no prompt; give one token at least, such as the one that begins a text")
	}
	if err := o.check("Generate"); err != nil {
		return nil, err
	}
	text := make([]int64, len(prompt), len(prompt)+n)
	for i, id := range prompt {
		text[i] = int64(id)
	}
	fresh := text // what next has not seen
	var made []int32
	for i := range n {
		err := dtensor.Try(ctx, mesh, func() {
			ids := dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), fresh, 1, len(fresh)), mesh.Every(layout.Replicate())...)
			logits := next(ids)
			if logits.NDim() != 2 || logits.Dim(0) != 1 {
				dtensor.Throw(fmt.Errorf("sample: Generate: next returned %v; return the logits of the last position alone, [1, V]", logits))
			}
			chosen := loss.Argmax
			if o.Temperature > 0 {
				chosen = func(logits *dtensor.Tensor) *dtensor.Tensor {
					return loss.Sample(logits, loss.SampleOptions{Key: dtensor.Key{Seed: seed, Stream: uint64(i)}, Temperature: o.Temperature,
						TopK: o.TopK, TopP: o.TopP})
				}
			}
			text = append(text, tensor.ToSlice[int64](chosen(logits).Full())[0])
		})
		if err != nil {
			return nil, err
		}
		if fresh = text; !o.Whole {
			fresh = text[len(text)-1:]
		}
		made = append(made, int32(text[len(text)-1]))
	}
	return made, nil
}
