// Command 15-gpt2 trains a GPT-2 on a text file, over all ranks: the batch is divided over the
// axis dp; heads, hidden features, vocabulary and, between them, positions over tp. Then it goes
// on with the line of a prompt. Without -data it learns its own source by heart.
//
//	gorun -np 4 ./examples/15-gpt2 -dp 2
//	gorun -np 2 ./examples/15-gpt2 -data notes.txt -steps 2000 -lr 0.001 -checkpoint /tmp/notes
//
// Output:
//
//	type gpt2 struct {
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/data"
	"github.com/gorun-spmd/gorun/data/tokenizer"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/runtime"
	"github.com/gorun-spmd/gorun/train"
	"github.com/gorun-spmd/gorun/train/sample"
)

const width, layers, heads, window, batch = 64, 2, 4, 64, 8

// A gpt2 lies on a mesh (dp, tp). B is the batch, T its positions, V the vocabulary, C the width.
type gpt2 struct {
	tokens, positions *embedding.Table // [V, C] R,S(0)   [T, C] R,R
	blocks            nn.List[*nn.Block]
	norm              *nn.LayerNorm
}

func newGPT2(mesh *dtensor.Mesh, vocab int) *gpt2 {
	init := nn.NewInit(mesh, 1)
	m := &gpt2{norm: nn.NewLayerNorm(init, width),
		tokens:    nn.NewEmbedding(init, embedding.Config{Rows: vocab, Dim: width, Layout: embedding.RowWise("tp"), Std: 0.02}),
		positions: nn.NewEmbedding(init, embedding.Config{Rows: window, Dim: width, Std: 0.02})}
	for range layers {
		m.blocks = append(m.blocks, nn.NewBlock(init, nn.BlockConfig{Width: width, Heads: heads, Bias: true, LayerNorm: true,
			Activation: (*dtensor.Tensor).GeluTanh, TensorAxis: "tp", Sequence: true, Names: nn.GPT2Names}))
	}
	return m
}

func (m *gpt2) Params() nn.Params {
	return nn.Join([]string{"wte", "wpe", "h", "ln_f"}, m.tokens, m.positions, m.blocks, m.norm)
}

// logits returns the scores of each token to follow each of ids, which follow those in caches.
func (m *gpt2) logits(ids *dtensor.Tensor, caches nn.KVCaches) *dtensor.Tensor { // [B, T] S(0),R
	h := m.tokens.Lookup(ids).Redistribute(ids.Placements()[0], layout.Shard(1)) // [B, T, C] S(0),MaskP → S(0),S(1)
	h = h.Add(m.positions.Weight().Narrow(0, caches.Len(), ids.Dim(1)))          // [B, T, C] S(0),S(1)
	for i, b := range m.blocks {
		h = b.ForwardWith(h, nn.AttentionInput{Cache: caches.At(i)})
	}
	return m.norm.Forward(h).Redistribute(ids.Placements()[0], layout.Replicate()).Linear(m.tokens.Weight(), nil) // [B, T, V] S(0),S(2)
}

//go:embed main.go
var source []byte

func main() { runtime.Main(run) }

func run(ctx context.Context, world *comm.Comm) error {
	var keep train.Keep
	f := flag.NewFlagSet("15-gpt2", flag.ContinueOnError)
	file, steps := f.String("data", "", "learn the text in this `file`"), f.Int("steps", 500, "to make")
	rate, dp := f.Float64("lr", 0.005, "peak learning rate"), f.Int("dp", 1, "ranks that divide the batch; the others divide the model")
	prompt, log := f.String("prompt", "type gpt2", "go on with this `text`"), f.String("metrics", "", "write losses to `PATH`")
	keep.Flags(f, 100, "-np and -dp")
	err := train.Parse(world, f)
	if err == nil && *file != "" {
		source, err = os.ReadFile(*file)
	}
	if err != nil {
		return err
	}
	mesh, err := train.NewMesh(world, *dp, 0)
	if err != nil {
		return err
	}
	tok, err := tokenizer.Train([][]byte{source}, 512)
	if err != nil {
		return err
	}
	text, err := data.NewSampler(tokenizer.NewEncoder(tok).Encode(nil, source), window, 1)
	if err != nil {
		return err
	}
	m := newGPT2(mesh, tok.VocabSize())
	r := train.Run{Program: "15-gpt2", Advice: "lower -lr", Steps: *steps, Unit: "tokens", PerStep: batch * window,
		Loss: func(step, _ int) *dtensor.Tensor {
			ids, targets := text.Batch(mesh, "dp", step, 0, batch)
			return loss.CrossEntropy(m.logits(ids, nil).Flatten(0, 1), targets.Flatten(0, 1), loss.Options{})
		},
		Params: m.Params(), Optimizer: optim.NewAdamW(nn.Tensors(m.Params()), optim.AdamWConfig{WeightDecay: 0.1}), Clip: 1,
		Rate: optim.WarmupCosine{Peak: *rate, Floor: *rate / 20, Warmup: train.Ticks / 20, Total: train.Ticks}, Keep: keep, Metrics: *log}
	if err := r.Do(ctx, world, nil); err != nil {
		return err
	}
	ids, caches := tokenizer.NewEncoder(tok).Encode(nil, []byte(*prompt)), make(nn.KVCaches, layers)
	next, err := sample.Generate(ctx, mesh, ids, 16, sample.Options{}, 1, func(ids *dtensor.Tensor) *dtensor.Tensor {
		return m.logits(ids, caches).Narrow(1, ids.Dim(1)-1, 1).Flatten(0, 1)
	})
	if err == nil && world.Rank() == 0 {
		fmt.Println(strings.Split(string(tok.Decode([]byte(*prompt), next)), "\n")[0])
	}
	return err
}
