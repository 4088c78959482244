package main

import (
	"context"
	"strconv"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/tensor"
)

// A model is a decoder-only transformer over a mesh (dp, tp). V is the
// vocabulary, C the width, T the context, B the batch.
type model struct {
	tokens    *embedding.Table // [V, C] R,S(0)
	positions *dtensor.Tensor  // [T, C] R,R
	blocks    []*nn.Block
	norm      *nn.RMSNorm
	head      *dtensor.Tensor // [V, C] R,S(0); the table's rows if tied
	tied      bool
}

// spread is the standard deviation of tables when training starts.
const spread = 0.02

func newModel(ctx context.Context, mesh *dtensor.Mesh, o *options, vocab int) (*model, error) {
	m := &model{tied: o.tied}
	err := dtensor.Try(ctx, mesh, func() {
		init := nn.NewInit(mesh, o.seed)
		if o.bfloat16 {
			init.DType = tensor.BFloat16
		}
		m.tokens = embedding.NewTable(mesh, embedding.Config{Name: "tokens", Rows: vocab, Dim: o.width, DType: init.DType,
			Layout: embedding.RowWise("tp"), Key: dtensor.Key{Seed: o.seed, Stream: tableStream}, Std: spread})
		m.positions = init.Normal(spread, []int{o.context, o.width}, "", layout.Replicate())
		for range o.layers {
			m.blocks = append(m.blocks, nn.NewBlock(init, nn.BlockConfig{Width: o.width, Heads: o.heads, TensorAxis: "tp"}))
		}
		m.norm = nn.NewRMSNorm(init, o.width)
		m.head = m.tokens.Weight()
		if !o.tied {
			m.head = init.Normal(spread, []int{vocab, o.width}, "tp", layout.Shard(0))
		}
		dtensor.Keep(m.params()...)
	})
	return m, err
}

// tableStream is the stream of random numbers of the token table; nn.Init
// counts its own from 1.
const tableStream = 1 << 32

// hidden returns what the head sees.
func (m *model) hidden(ids *dtensor.Tensor) *dtensor.Tensor { // [B, T] S(0),R
	h := m.tokens.Lookup(ids).Reduced()              // [B, T, C] S(0),MaskP → S(0),R
	h = h.Add(m.positions.Narrow(0, 0, ids.Dim(-1))) // [B, T, C] S(0),R
	for _, b := range m.blocks {
		h = b.Forward(h)
	}
	return m.norm.Forward(h)
}

// logits returns the scores of every token to follow each position.
func (m *model) logits(ids *dtensor.Tensor) *dtensor.Tensor {
	return m.hidden(ids).Linear(m.head, nil) // [B, T, V] S(0),S(2)
}

// loss returns the cross-entropy of the targets. The logits stay divided by
// vocabulary: what crosses ranks is a few numbers for each position.
func (m *model) loss(ids, targets *dtensor.Tensor, r loss.Reduction) *dtensor.Tensor {
	return loss.CrossEntropy(m.logits(ids).Flatten(0, 1), targets.Flatten(0, 1), loss.Options{Reduction: r})
}

// params lists the parameters; a tied head is no parameter of its own.
func (m *model) params() []*dtensor.Tensor { return nn.Tensors(m.named()) }

func (m *model) named() nn.Params {
	return func(yield func(string, *dtensor.Tensor) bool) {
		if !yield("tokens", m.tokens.Weight()) || !yield("positions", m.positions) {
			return
		}
		var names []string
		var layers []nn.Layer
		for i, b := range m.blocks {
			names, layers = append(names, "block"+strconv.Itoa(i)), append(layers, b)
		}
		names, layers = append(names, "norm"), append(layers, m.norm)
		for name, p := range nn.Join(names, layers...) {
			if !yield(name, p) {
				return
			}
		}
		if !m.tied {
			yield("head", m.head)
		}
	}
}

// count returns the number of parameters.
func (m *model) count() int {
	n := 0
	for _, p := range m.params() {
		n += p.Numel()
	}
	return n
}
