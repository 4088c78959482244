package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/gorun-spmd/gorun/bench/internal/measure"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/tensor"
)

// axis is the axis of a benchmark's mesh.
const axis = "tp"

// bagSize is a number of tables [rows, dim], and how many samples look up a bag of so many ids in
// each of them.
type bagSize struct{ tables, rows, dim, samples, ids int }

func (s bagSize) String() string {
	return fmt.Sprintf("%d tables of %dx%d/%d of %d", s.tables, s.rows, s.dim, s.samples, s.ids)
}

// layouts returns the layouts of a table by name. "mixed" differs from table to table.
func layouts(table, ranks int) map[string]embedding.Layout {
	all := []embedding.Layout{embedding.RowWise(axis), embedding.ColumnWise(axis), embedding.Replicated(),
		embedding.TableWise(axis, table%ranks)}
	return map[string]embedding.Layout{"row-wise": all[0], "column-wise": all[1], "data-parallel": all[2], "table-wise": all[3],
		"mixed": all[table%len(all)]}
}

// bags is one case of bags with its tensors: samples are S(0), and so is the result.
type bags struct {
	b      *measure.Bench
	size   bagSize
	ids    [][]int64              // by table: the ids of all samples
	pooled func() *dtensor.Tensor // the bags, [samples, tables·dim]
	params []*dtensor.Tensor
	seed   *dtensor.Tensor // the gradient from above: ones
}

// runBags measures sums of bags, by Bag for one table and by a Collection for several.
func runBags(b *measure.Bench, sizes []bagSize) error {
	for _, s := range sizes {
		for _, kind := range []string{"row-wise", "column-wise", "data-parallel", "table-wise", "mixed"} {
			name := "collection, " + kind
			if s.tables == 1 {
				name = "bag, " + kind
			}
			name += "/" + s.String()
			if s.tables == 1 && kind == "mixed" || !b.Wants(name+"/forward") && !b.Wants(name+"/both") {
				continue
			}
			if err := measureBags(b, name, kind, s); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

func measureBags(b *measure.Bench, name, kind string, s bagSize) error {
	rng := rand.New(rand.NewPCG(7, 0))
	c := &bags{b: b, size: s, ids: make([][]int64, s.tables)}
	for t := range c.ids {
		for range s.samples * s.ids {
			c.ids[t] = append(c.ids[t], rng.Int64N(int64(s.rows)))
		}
	}
	place := layout.Shard(0)
	c.seed = dtensor.Full(b.Mesh, tensor.Float32, 1, []int{s.samples, s.tables * s.dim}, place)
	configs := make([]embedding.CollectionTable, s.tables)
	for t := range configs {
		feature := fmt.Sprint(t)
		configs[t] = embedding.CollectionTable{Mode: embedding.Sum, Features: []string{feature}, Config: embedding.Config{Name: feature,
			Rows: s.rows, Dim: s.dim, Layout: layouts(t, b.Mesh.Size())[kind], Key: dtensor.Key{Seed: uint64(t)}}}
	}
	if s.tables == 1 {
		table := embedding.NewTable(b.Mesh, configs[0].Config)
		ids := dtensor.Distribute(b.Mesh, tensor.FromSlice(b.Mesh.Device(), c.ids[0], s.samples, s.ids), place)
		c.params = []*dtensor.Tensor{table.Param()}
		c.pooled = func() *dtensor.Tensor { return table.Bag(ids, nil, nil, embedding.Sum) }
	} else {
		batch, err := c.batch(place)
		if err != nil {
			return err
		}
		tables := embedding.NewCollection(b.Mesh, configs...)
		c.params = tables.Params()
		c.pooled = func() *dtensor.Tensor { return tables.Bags(batch).Values() }
	}
	defer func() {
		for _, p := range c.params {
			p.Local().Free()
		}
	}()
	if err := c.check(); err != nil {
		return err
	}
	forward := func() error { return dtensor.Try(b.Context(), b.Mesh, func() { c.pooled() }) }
	both := func() error {
		_, err := gradients(b, c.pooled, c.seed, c.params...)
		return err
	}
	return measurePhases(b, name, forward, both, c.seed)
}

// batch returns this rank's samples as a Jagged.
func (c *bags) batch(place layout.Placement) (*embedding.Jagged, error) {
	offset, _ := c.seed.Offset()
	first, n := offset[0]*c.size.ids, c.seed.Local().Dim(0)*c.size.ids
	var features []string
	var lengths []int
	var ids []int64
	for t := range c.ids {
		features = append(features, fmt.Sprint(t))
		for range c.seed.Local().Dim(0) {
			lengths = append(lengths, c.size.ids)
		}
		ids = append(ids, c.ids[t][first:first+n]...)
	}
	return embedding.NewJagged(c.b.Mesh, features, c.size.samples, lengths, ids, nil, place)
}

// check compares bags with a plain loop, up to the order of additions. With a seed of ones, the
// gradient of an id's row must be the number of times that the id occurs.
func (c *bags) check() (err error) {
	s := c.size
	tryErr := dtensor.Try(c.b.Context(), c.b.Mesh, func() {
		pooled := c.pooled()
		offset, _ := pooled.Offset()
		got := tensor.Data[float32](pooled.Local())
		for t, p := range c.params {
			rows := tensor.Data[float32](p.Full())
			for i := range pooled.Local().Dim(0) {
				bag := c.ids[t][(offset[0]+i)*s.ids:][:s.ids]
				for j := range s.dim {
					want := 0.0
					for _, id := range bag {
						want += float64(rows[int(id)*s.dim+j])
					}
					if g := float64(got[(i*s.tables+t)*s.dim+j]); !(math.Abs(g-want) <= 1e-5*float64(s.ids)) && err == nil {
						err = fmt.Errorf("table %d, sample %d has %v at feature %d, want %v", t, offset[0]+i, g, j, want)
					}
				}
			}
		}
	})
	if err := errors.Join(tryErr, err); err != nil {
		return err
	}
	grads, err := gradients(c.b, c.pooled, c.seed, c.params...)
	if err != nil {
		return err
	}
	for t, g := range grads {
		if err := checkCounts(g, c.params[t], c.ids[t]); err != nil {
			return fmt.Errorf("table %d: %w", t, err)
		}
	}
	return nil
}
