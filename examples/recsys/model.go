package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/data/criteo"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/nn"
)

// A model is a DLRM over a mesh (dp, tp). B is the batch, divided over both axes,
// D the features of a table's rows.
type model struct {
	tables *embedding.Collection // 26, [rows, D]; nil with keys
	keys   *embedding.Dynamic    // with -dynamic: of all categories, [rows, D]
	bottom nn.Sequential         // 13 → … → D
	top    nn.Sequential         // D + 351 → … → 1
	dim    int
}

// vectors is how many there are to multiply with each other, and pairs how many products.
const (
	vectors = 1 + criteo.Categorical
	pairs   = vectors * (vectors - 1) / 2
)

func newModel(ctx context.Context, mesh *dtensor.Mesh, o *options, tables []embedding.CollectionTable) (*model, error) {
	m := &model{dim: o.dim}
	err := dtensor.Try(ctx, mesh, func() {
		if o.dynamic > 0 {
			m.keys = embedding.NewDynamic(mesh, embedding.DynamicConfig{Name: "keys", Dim: o.dim, DType: o.dtype(), Axis: "tp",
				Budget: int(o.dynamic * 1e6), Seed: o.seed, Std: spread})
		} else {
			m.tables = embedding.NewCollection(mesh, tables...)
			dtensor.Keep(m.tables.Params()...)
		}
		init := nn.NewInit(mesh, o.seed)
		init.DType = o.dtype()
		m.bottom = append(nn.NewLinears(init, activation, slices.Concat([]int{criteo.Dense}, o.bottom, []int{o.dim})...), nn.Func(activation))
		m.top = nn.NewLinears(init, activation, slices.Concat([]int{o.dim + pairs}, o.top, []int{1})...)
		dtensor.Keep(m.dense()...)
	})
	return m, err
}

// activation is GELU, not DLRM's ReLU, as that has a kink: there the last bit of a sum, which
// depends on how many ranks made it, decides about a gradient, and runs on 1 and on 2 ranks part
// after some hundred steps.
func activation(x *dtensor.Tensor) *dtensor.Tensor { return x.Gelu() }

// logits returns one number for each line, of which rows has the rows of the categories.
func (m *model) logits(counts, rows *dtensor.Tensor) *dtensor.Tensor { // [B, 13], [B, 26·D]  S(0),S(0)
	b := counts.Dim(0)
	x := m.bottom.Forward(counts.Cast(rows.DType()))                           // [B, D]
	all := dtensor.Cat(1, x, rows).Reshape(b, vectors, m.dim)                  // [B, 27, D]
	return m.top.Forward(dtensor.Cat(1, x, nn.DotInteraction(all))).Reshape(b) // [B, D + 351] → [B]
}

// dense lists the parameters of the networks.
func (m *model) dense() []*dtensor.Tensor {
	return append(nn.Tensors(m.bottom.Params()), nn.Tensors(m.top.Params())...)
}

// tablesFor describes the tables of a vocabulary in the given layouts; stores has what of a table's rows is in memory,
// in bytes, of those that are on disks.
func tablesFor(v *criteo.Vocabulary, o *options, layouts []embedding.Layout, stores map[int]int) []embedding.CollectionTable {
	var tables []embedding.CollectionTable
	for f, rows := range v.Rows {
		name := criteo.Feature(f)
		c := embedding.Config{Name: name, Rows: rows, Dim: o.dim, DType: o.dtype(), Layout: layouts[f],
			Key: dtensor.Key{Seed: o.seed, Stream: tableStream + uint64(f)}, Std: spread}
		if cache, ok := stores[f]; ok {
			c.Store, c.Cache = o.store, cache
		}
		tables = append(tables, embedding.CollectionTable{Config: c, Features: []string{name}, Mode: embedding.Sum})
	}
	return tables
}

// stores divides the cache: from the smallest table on each has all of its rows in memory while they fit in what
// it would get if those that follow got as much. The others are on disks: each rank has room for what a step changes of
// each, and they divide what is left by their sizes.
func stores(v *criteo.Vocabulary, o *options, ranks int) (caches map[int]int, err error) {
	if o.store == "" {
		return nil, nil
	}
	order := make([]int, len(v.Rows))
	for f := range order {
		order[f] = f
	}
	slices.SortStableFunc(order, func(a, b int) int { return v.Rows[a] - v.Rows[b] })
	rowBytes := o.dim * o.dtype().Size()
	step := ranks * (o.batch + o.batch/4 + 2*cacheSet) // all lines of a batch may have rows of one rank
	left, rows := int(o.cache*1e6)/rowBytes, 0
	for len(order) > 0 && v.Rows[order[0]] <= max(step, left/len(order)) {
		left -= v.Rows[order[0]]
		order = order[1:]
	}
	for _, f := range order {
		rows += v.Rows[f]
		left -= step
	}
	if left < 0 {
		return nil, fmt.Errorf("-cache %v: the rows that a step of %d lines may change take %.4g MB more; give them, or a smaller -batch",
			o.cache, o.batch, float64(-left*rowBytes)/1e6)
	}
	caches = map[int]int{}
	for _, f := range order {
		caches[f] = (step + int(float64(left)*float64(v.Rows[f])/float64(rows))) * rowBytes
	}
	return caches, nil
}

// cacheSet is how many rows of a cache go together.
const cacheSet = 16

// tableStream is the first stream of random numbers of the tables; nn.Init
// counts its own from 1. spread is their standard deviation to begin with.
const (
	tableStream = 1 << 32
	spread      = 0.1
)
