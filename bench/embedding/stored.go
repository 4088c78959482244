package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"unsafe"

	"github.com/gorun-spmd/gorun/bench/internal/measure"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
)

// storedSize is the size of a table [rows, dim], of which 1/share is in memory, and of batches:
// samples with so many ids each.
type storedSize struct{ rows, dim, share, samples, ids, hidden int }

func (s storedSize) String() string {
	return fmt.Sprintf("%dx%d, cache 1:%d/%d of %d", s.rows, s.dim, s.share, s.samples, s.ids)
}

// runStored measures steps of training: a lookup of ids whose frequencies follow Zipf's law, its gradient
// and a fused update by row-wise Adagrad; alone, and below a perceptron of one hidden layer. The table lies in
// memory, then on a disk with a cache of a part of it, with each batch prefetched a step ahead and without.
func runStored(b *measure.Bench, sizes []storedSize) error {
	for _, s := range sizes {
		for _, model := range []string{"lookup", "perceptron"} {
			memory := 0.0
			for _, place := range []string{"in memory", "on a disk", "on a disk, no prefetch"} {
				name := "stored, " + model + " " + place + "/" + s.String()
				if !b.Wants(name) {
					continue
				}
				if err := measureStored(b, name, s, model == "perceptron", place, &memory); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
		}
	}
	return nil
}

// storedCase is one case with its tables.
type storedCase struct {
	b       *measure.Bench
	size    storedSize
	table   *embedding.Table
	weights []*dtensor.Tensor // of the perceptron; nil: there is none
	batches []*dtensor.Tensor
	next    int
	ahead   bool
}

func measureStored(b *measure.Bench, name string, s storedSize, perceptron bool, place string, memory *float64) error {
	dir, err := os.MkdirTemp("", "stored")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c := &storedCase{b: b, size: s, ahead: place == "on a disk"}
	config := embedding.Config{Name: "users", Rows: s.rows, Dim: s.dim, Layout: embedding.RowWise(axis), Key: dtensor.Key{Seed: 3}, Std: 0.1}
	if place != "in memory" {
		config.Store, config.Cache = dir, s.rows*s.dim*4/s.share
	}
	c.table = embedding.NewTable(b.Mesh, config)
	defer c.table.Weight().Local().Free()
	opt := optim.NewRowAdagrad([]*dtensor.Tensor{c.table.Resident()}, optim.RowAdagradConfig{})
	c.table.Follow(opt.State())
	c.table.Fuse(func(rows *dtensor.Rows) error { return opt.Step([]dtensor.Grad{dtensor.Sparse(rows)}, 0.01) })
	if err := c.fill(); err != nil {
		return err
	}
	if perceptron {
		for i, shape := range [][]int{{s.ids * s.dim, s.hidden}, {s.hidden, 1}} {
			w := dtensor.Normal(b.Mesh, dtensor.Key{Seed: uint64(5 + i)}, 0, 0.02, shape, layout.Replicate())
			w.Local().Persist()
			c.weights = append(c.weights, w)
		}
	}
	rng := rand.New(rand.NewPCG(7, 0))
	zipf := rand.NewZipf(rng, 1.05, 1, uint64(s.rows-1))
	const batches = 100
	for range batches {
		ids := make([]int64, s.samples*s.ids)
		for i := range ids {
			ids[i] = int64(zipf.Uint64())
		}
		c.batches = append(c.batches, dtensor.Distribute(b.Mesh, tensor.FromSlice(b.Mesh.Device(), ids, s.samples, s.ids), layout.Shard(0)))
	}
	for range batches { // the cache gets the rows that are used most
		if err := c.step(); err != nil {
			return err
		}
	}
	before := c.stats()
	return b.CaseErr(name, c.step, func(t measure.Timing) []measure.Field {
		if place == "in memory" {
			*memory = t.NS
			return nil
		}
		after := c.stats()
		fields := []measure.Field{{Name: "hit_rate", Value: float64(after.Hits-before.Hits-(after.PrefetchHits-before.PrefetchHits)) /
			float64(max(1, after.Wanted-before.Wanted))}}
		if *memory > 0 {
			fields = append(fields, measure.Field{Name: "of_memory", Value: *memory / t.NS})
		}
		return fields
	})
}

// stats returns the statistics of the table.
func (c *storedCase) stats() (s embedding.StoreStats) {
	_ = dtensor.Try(c.b.Context(), c.b.Mesh, func() { s = c.table.StoreStats() }) // the next step says what is wrong
	return s
}

// fill writes all rows to the disk, as loading a checkpoint does.
func (c *storedCase) fill() error {
	rows, stored := c.table.Weight().Stored()
	if !stored {
		return nil
	}
	n, width := c.table.Weight().LocalShape()[0], c.size.dim
	const piece = 1 << 14
	values := make([]float32, piece*width)
	for i := range values {
		values[i] = float32(i%13) / 130
	}
	for first := 0; first < n; first += piece {
		its := values[:min(piece, n-first)*width]
		if err := rows.WriteRows(first, unsafe.Slice((*byte)(unsafe.Pointer(&its[0])), 4*len(its))); err != nil {
			return err
		}
	}
	return nil
}

// step is the measured step.
func (c *storedCase) step() error {
	ids, next := c.batches[c.next], (c.next+1)%len(c.batches)
	c.next = next
	if c.ahead {
		if err := dtensor.Try(c.b.Context(), c.b.Mesh, func() { c.table.Prefetch(c.batches[next]) }); err != nil {
			return err
		}
	}
	_, _, err := dtensor.ValueAndGrad(c.b.Context(), func() *dtensor.Tensor {
		h := c.table.Lookup(ids)
		if c.weights != nil {
			h = h.Flatten(1, 2).MatMul(c.weights[0]).Relu().MatMul(c.weights[1])
		}
		return h.Mul(h).Sum(nil, false)
	}, append([]*dtensor.Tensor{c.table.Param()}, c.weights...)...)
	return err
}
