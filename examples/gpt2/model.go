package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/gorun-spmd/gorun/checkpoint"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/nn"
)

// A model is a decoder over a mesh (dp, tp): a GPT-2 or a Llama. V is the vocabulary,
// C the width, P the positions.
type model struct {
	c         *config
	mesh      *dtensor.Mesh
	sequence  bool             // the residual stream is divided by position
	tokens    *embedding.Table // [V, C] R,S(0)
	positions *dtensor.Tensor  // [P, C] R,R; nil: blocks have rotary positions
	blocks    []*nn.Block
	norm      nn.Module
	head      *dtensor.Tensor // [V, C] R,S(0); the table's rows if tied
}

// newModel makes a model of random numbers. With sequence the positions of the residual
// stream are divided over tp.
func newModel(ctx context.Context, mesh *dtensor.Mesh, c *config, sequence bool) (*model, error) {
	m := &model{c: c, mesh: mesh, sequence: sequence}
	err := dtensor.Try(ctx, mesh, func() {
		init := nn.NewInit(mesh, 1)
		block := c.block
		block.TensorAxis, block.Sequence = "tp", sequence
		m.tokens = embedding.NewTable(mesh, embedding.Config{Name: "tokens", Rows: c.vocab, Dim: c.width, Layout: embedding.RowWise("tp"),
			Std: 0.02})
		if c.gpt {
			m.positions = init.Normal(0.02, []int{c.positions, c.width}, "", layout.Replicate())
			norm := nn.NewLayerNorm(init, c.width)
			norm.Eps, m.norm = c.block.Eps, norm
		} else {
			block.Rope = nn.NewRope(init, c.rope)
			norm := nn.NewRMSNorm(init, c.width)
			norm.Eps, m.norm = c.block.Eps, norm
		}
		for range c.layers {
			m.blocks = append(m.blocks, nn.NewBlock(init, block))
		}
		m.head = m.tokens.Weight()
		if !c.tied {
			m.head = init.Normal(0.02, []int{c.vocab, c.width}, "tp", layout.Shard(0))
		}
		dtensor.Keep(nn.Tensors(m.Params())...)
	})
	return m, err
}

// Forward returns the scores of every token to follow each position. With caches, one a
// layer, ids follow those of the calls before.
//
//	ids [B, T] S(0),R   →   [B, T, V] S(0),S(2)
func (m *model) Forward(ids *dtensor.Tensor, caches nn.KVCaches) *dtensor.Tensor {
	return m.hidden(ids, caches).Linear(m.head, nil)
}

// hidden returns what the head sees, [B, T, C] S(0),R.
func (m *model) hidden(ids *dtensor.Tensor, caches nn.KVCaches) *dtensor.Tensor {
	dp := ids.Placements()[0]
	h := m.tokens.Lookup(ids) // [B, T, C] S(0),MaskP
	if m.sequence {
		h = h.Redistribute(dp, layout.Shard(1)) // S(0),S(1)
	}
	h = h.Reduced()
	if m.positions != nil {
		h = h.Add(m.positions.Narrow(0, caches.Len(), ids.Dim(1)))
	}
	for i, b := range m.blocks {
		h = b.ForwardWith(h, nn.AttentionInput{Cache: caches.At(i)})
	}
	h = m.norm.Forward(h)
	if m.sequence {
		h = h.Redistribute(dp, layout.Replicate())
	}
	return h
}

// loss returns the mean cross-entropy of targets [B, T] S(0),R.
func (m *model) loss(ids, targets *dtensor.Tensor) *dtensor.Tensor {
	return loss.CrossEntropy(m.Forward(ids, nil).Flatten(0, 1), targets.Flatten(0, 1), loss.Options{})
}

// Params lists the parameters under the names that Hugging Face's files have, except for
// GPT-2's queries, keys and values, which those have in one.
func (m *model) Params() nn.Params {
	stem, tokens, layers, norm := "model.", "embed_tokens", "layers", "norm"
	if m.c.gpt {
		stem, tokens, layers, norm = "transformer.", "wte", "h", "ln_f"
	}
	names, list := []string{stem + tokens}, []nn.Layer{m.tokens}
	for i, b := range m.blocks {
		names, list = append(names, stem+layers+"."+strconv.Itoa(i)), append(list, b)
	}
	names, list = append(names, stem+norm), append(list, m.norm)
	return func(yield func(string, *dtensor.Tensor) bool) {
		for name, p := range nn.Join(names, list...) {
			if !yield(name, p) {
				return
			}
		}
		if m.positions != nil && !yield(stem+"wpe.weight", m.positions) {
			return
		}
		if !m.c.tied {
			yield("lm_head.weight", m.head)
		}
	}
}

// mapping says what a file of GPT-2 has in another form: weights [in, out] instead of
// [out, in], and queries, keys and values as one. stem begins the names of the file.
func (m *model) mapping(stem string) []checkpoint.Mapping {
	if !m.c.gpt {
		return nil
	}
	c, all := m.c.width, "transformer.h.*."
	fused := func(part string, start int) checkpoint.Mapping {
		return checkpoint.Mapping{Name: all + "attn." + part + ".*", File: stem + "h.*.attn.c_attn.*", Transpose: true, Dim: -1, Start: start,
			Fused: 3 * c}
	}
	list := []checkpoint.Mapping{fused("q", 0), fused("k", c), fused("v", 2*c)}
	for _, name := range []string{"attn.c_proj", "mlp.c_fc", "mlp.c_proj"} {
		list = append(list, checkpoint.Mapping{Name: all + name + ".*", File: stem + "h.*." + name + ".*", Transpose: true})
	}
	return append(list, checkpoint.Mapping{Name: all + "*.*", File: stem + "h.*.*.*"},
		checkpoint.Mapping{Name: "transformer.*.*", File: stem + "*.*"})
}

// load reads the model in a folder. Each rank reads what its shards need.
func (m *model) load(ctx context.Context, world *comm.Comm, dir string) error {
	var state checkpoint.State
	state.AddTensors("", m.Params())
	stem := "transformer."
	if m.c.gpt { // files of the model without its head have no stem
		list, err := checkpoint.Tensors(dir)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(list, func(t checkpoint.TensorInfo) bool { return t.Name == "wte.weight" }) {
			stem = ""
		}
	}
	o := checkpoint.LoadOptions{Map: m.mapping(stem)}
	// Constants that older files have, and the head where it is the token table.
	o.Ignore = []string{stem + "h.*.attn.bias", stem + "h.*.attn.masked_bias", "model.layers.*.self_attn.rotary_emb.inv_freq"}
	if m.c.tied {
		o.Ignore = append(o.Ignore, "lm_head.weight")
	}
	return checkpoint.Load(ctx, world, dir, &state, o)
}

// export writes the model into a folder, as Hugging Face's transformers reads it. No rank
// holds more of it than its shards.
func (m *model) export(ctx context.Context, world *comm.Comm, dir string) error {
	var state checkpoint.State
	state.AddTensors("", m.Params())
	return checkpoint.Export(ctx, world, dir, &state,
		checkpoint.ExportOptions{Map: m.mapping("transformer."), Metadata: map[string]string{"format": "pt"}})
}

// String describes the model.
func (m *model) String() string {
	n := 0
	for _, p := range m.Params() {
		n += p.Numel()
	}
	return fmt.Sprintf("%d parameters, %d layers of %d features, %d tokens, mesh %v", n, m.c.layers, m.c.width, m.c.vocab, m.mesh)
}
