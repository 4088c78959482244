package main

import (
	"context"

	"github.com/gorun-spmd/gorun/data/criteo"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/tensor"
)

// A model is a DLRM over a mesh (dp, tp). B is the batch, divided over both axes,
// D the features of a table's rows.
type model struct {
	tables *embedding.Collection // 26, [rows, D]; nil with keys
	keys   *embedding.Dynamic    // with -dynamic: of all categories, [rows, D]
	bottom nn.Sequential         // 13 → … → D
	top    nn.Sequential         // D + 351 → … → 1
	pairs  *dtensor.Tensor       // [351] which of the 27·27 products the top network sees
	dim    int
}

// vectors is how many there are to multiply with each other.
const vectors = 1 + criteo.Categorical

func newModel(ctx context.Context, mesh *dtensor.Mesh, o *options, tables []embedding.CollectionTable) (*model, error) {
	m := &model{dim: o.dim}
	err := dtensor.Try(ctx, mesh, func() {
		if o.dynamic > 0 {
			m.keys = embedding.NewDynamic(mesh, embedding.DynamicConfig{Name: "keys", Dim: o.dim, Axis: "tp", Budget: int(o.dynamic * 1e6),
				Seed: o.seed, Std: spread})
		} else {
			m.tables = embedding.NewCollection(mesh, tables...)
			dtensor.Keep(m.tables.Params()...)
		}
		init := nn.NewInit(mesh, o.seed)
		m.bottom = network(init, true, criteo.Dense, 64, 32, o.dim)
		var pairs []int64
		for i := range vectors {
			for j := range i {
				pairs = append(pairs, int64(i*vectors+j))
			}
		}
		m.top = network(init, false, o.dim+len(pairs), 128, 64, 1)
		m.pairs = dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), pairs, len(pairs)), layout.Replicate(), layout.Replicate())
		dtensor.Keep(m.pairs)
		dtensor.Keep(m.dense()...)
	})
	return m, err
}

// network makes the layers from one width to the next, with a GELU after each but perhaps the
// last. It is not DLRM's ReLU as that has a kink: there the last bit of a sum, which depends on
// how many ranks made it, decides about a gradient, and runs on 1 and on 2 ranks part after
// some hundred steps.
func network(init *nn.Init, last bool, widths ...int) nn.Sequential {
	var s nn.Sequential
	for i, out := range widths[1:] {
		if s = append(s, nn.NewLinear(init, widths[i], out, true, nn.Style{})); last || i+2 < len(widths) {
			s = append(s, nn.Func((*dtensor.Tensor).Gelu))
		}
	}
	return s
}

// logits returns one number for each line, of which rows has the rows of the categories.
func (m *model) logits(counts, rows *dtensor.Tensor) *dtensor.Tensor { // [B, 13], [B, 26·D]  S(0),S(0)
	b := counts.Dim(0)
	x := m.bottom.Forward(counts)                                           // [B, D]
	all := dtensor.Cat(1, x, rows).Reshape(b, vectors, m.dim)               // [B, 27, D]
	products := all.MatMul(all.Transpose(1, 2)).Reshape(b, vectors*vectors) // [B, 27·27]
	x = dtensor.Cat(1, x, products.IndexSelect(1, m.pairs))                 // [B, D + 351]
	return m.top.Forward(x).Reshape(b)                                      // [B]
}

// dense lists the parameters of the networks.
func (m *model) dense() []*dtensor.Tensor {
	return append(nn.Tensors(m.bottom.Params()), nn.Tensors(m.top.Params())...)
}

// tablesFor describes the tables of a vocabulary in the given layouts.
func tablesFor(v *criteo.Vocabulary, o *options, layouts []embedding.Layout) []embedding.CollectionTable {
	var tables []embedding.CollectionTable
	for f, rows := range v.Rows {
		name := criteo.Feature(f)
		tables = append(tables, embedding.CollectionTable{
			Config: embedding.Config{Name: name, Rows: rows, Dim: o.dim, Layout: layouts[f],
				Key: dtensor.Key{Seed: o.seed, Stream: tableStream + uint64(f)}, Std: spread},
			Features: []string{name}, Mode: embedding.Sum})
	}
	return tables
}

// tableStream is the first stream of random numbers of the tables; nn.Init
// counts its own from 1. spread is their standard deviation to begin with.
const (
	tableStream = 1 << 32
	spread      = 0.1
)
