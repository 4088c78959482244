package main

import (
	"context"
	"strconv"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/data"
	"github.com/gorun-spmd/gorun/data/ngram"
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
	counts    *ngram.Model  // what the logits start from; nil: nothing
	scorer    *ngram.Scorer // its scores of this rank's part of the logits
	part      [2]int        // that: the first token, and how many
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
			std := spread
			if o.ngram > 1 {
				std = 0 // the model begins as the counts alone
			}
			m.head = init.Normal(std, []int{vocab, o.width}, "tp", layout.Shard(0))
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

// logits returns the scores of every token to follow each position from the given one on:
// what the network says, and what the counts say, which is where it starts from.
func (m *model) logits(ids *dtensor.Tensor, from int) *dtensor.Tensor {
	h := m.hidden(ids)
	logits := h.Narrow(1, from, h.Dim(1)-from).Linear(m.head, nil) // [B, T-from, V] S(0),S(2)
	if m.counts == nil {
		return logits
	}
	return logits.Cast(tensor.Float32).Add(m.prior(ids, logits, from))
}

// prior returns what the count model says where logits are, on this rank's part of them.
func (m *model) prior(ids, logits *dtensor.Tensor, from int) *dtensor.Tensor {
	p := tensor.New(logits.Mesh().Device(), tensor.Float32, logits.LocalShape()...)
	offset, _ := logits.Offset()
	v := logits.LocalShape()[2]
	if part := [2]int{offset[2], v}; m.scorer == nil || m.part != part { // with --same-bits it may be another than the head's
		m.scorer, m.part = m.counts.NewScorer(offset[2], v), part
	}
	var tokens []int32
	for _, id := range tensor.ToSlice[int64](ids.Local()) {
		tokens = append(tokens, int32(id))
	}
	tensor.Edit(p, func(p []float32) {
		for t := ids.Dim(1); len(tokens) > 0; tokens = tokens[t:] {
			for i := from; i < t; i++ {
				m.scorer.LogProbs(p[:v], tokens[:i+1])
				p = p[v:]
			}
		}
	})
	prior, err := dtensor.FromLocal(logits.Mesh(), p, logits.Shape(), logits.Placements()...)
	dtensor.Check(err)
	return prior
}

// startFrom has the logits start from those of a count model of tokens, which rank 0 makes.
func (m *model) startFrom(ctx context.Context, world *comm.Comm, tokens func() []int32, order int) error {
	vocab := m.head.Dim(0)
	packed, err := data.ShareKept(ctx, world, "counts", func() ([]byte, error) {
		counts, err := ngram.New(tokens(), vocab, order)
		if err != nil {
			return nil, err
		}
		return counts.MarshalBinary()
	})
	if err != nil {
		return err
	}
	m.counts, err = ngram.Parse(packed)
	return err
}

// loss returns the mean cross-entropy of the targets. The logits stay divided by
// vocabulary: what crosses ranks is a few numbers for each position.
func (m *model) loss(ids, targets *dtensor.Tensor) *dtensor.Tensor {
	return loss.CrossEntropy(m.logits(ids, 0).Flatten(0, 1), targets.Flatten(0, 1), loss.Options{})
}

// nats returns the sum of the cross-entropy of the targets.
func (m *model) nats(ids, targets *dtensor.Tensor) *dtensor.Tensor {
	return loss.CrossEntropy(m.logits(ids, 0).Flatten(0, 1), targets.Flatten(0, 1), loss.Options{Reduction: loss.Sum})
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
