package embedding_test

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// A batch is a whole jagged batch: lists[f][s] are the ids of a feature and sample.
type batch struct {
	features []string
	lists    [][][]int64
	weighted bool
}

// someBatch makes lists of ids for features with so many rows. Some lists are
// empty, and so are all of the last feature's if it has no rows.
func someBatch(features []string, rows []int, samples int, weighted bool) *batch {
	b := &batch{features: features, weighted: weighted}
	for f := range features {
		var lists [][]int64
		for s := range samples {
			n := (s*s + f) % 4
			if rows[f] == 0 {
				n = 0
			}
			if f == 1 {
				n = 1
			}
			var ids []int64
			if n > 0 {
				ids = someIDs(n, rows[f], s+3*f)
			}
			lists = append(lists, ids)
		}
		b.lists = append(b.lists, lists)
	}
	return b
}

// weight is the factor of id k of a sample of a feature.
func (b *batch) weight(f, s, k int) float64 {
	if !b.weighted {
		return 1
	}
	return float64(1+(f+2*s+3*k)%4) / 4
}

// place puts this rank's samples on the mesh.
func (b *batch) place(m *dtensor.Mesh, places ...layout.Placement) (*embedding.Jagged, error) {
	samples := len(b.lists[0])
	whole := dtensor.Distribute(m, tensor.Arange(m.Device(), tensor.Int64, 0, samples), places...)
	var lengths []int
	var ids []int64
	var weights []float32
	for f := range b.lists {
		for _, s := range tensor.ToSlice[int64](whole.Local()) {
			lengths = append(lengths, len(b.lists[f][s]))
			ids = append(ids, b.lists[f][s]...)
			for k := range b.lists[f][s] {
				weights = append(weights, float32(b.weight(f, int(s), k)))
			}
		}
	}
	if !b.weighted {
		weights = nil
	} else if weights == nil {
		weights = []float32{}
	}
	return embedding.NewJagged(m, b.features, samples, lengths, ids, weights, places...)
}

// A shelf describes a collection for tests.
type shelf struct {
	tables []embedding.CollectionTable
}

func (sh *shelf) width() int {
	w := 0
	for _, t := range sh.tables {
		w += t.Dim * len(t.Features)
	}
	return w
}

// bags is Bags as loops over whole tables; gy is [samples, width].
func (sh *shelf) bags(b *batch, tables [][]float64, gy []float64) (out []float64, grads [][]float64) {
	samples, width, at := len(b.lists[0]), sh.width(), 0
	out = make([]float64, samples*width)
	for t, table := range sh.tables {
		grads = append(grads, make([]float64, len(tables[t])))
		times := map[int64]float64{}
		for _, name := range table.Features {
			f := index(b.features, name)
			for s, ids := range b.lists[f] {
				for _, id := range ids {
					times[id]++
				}
				if table.Mode == embedding.Max {
					for c := range table.Dim {
						if id, most := sh.largest(t, ids, c, tables[t]); id >= 0 {
							out[s*width+at+c] = most
							grads[t][id*table.Dim+c] += gy[s*width+at+c]
						}
					}
					continue
				}
				used := 0
				for _, id := range ids {
					if table.PaddingIdx == nil || int(id) != *table.PaddingIdx {
						used++
					}
				}
				for k, id := range ids {
					if table.PaddingIdx != nil && int(id) == *table.PaddingIdx {
						continue
					}
					factor := b.weight(f, s, k)
					if table.Mode == embedding.Mean {
						factor = 1 / float64(used)
					}
					for c := range table.Dim {
						out[s*width+at+c] += factor * tables[t][int(id)*table.Dim+c]
						grads[t][int(id)*table.Dim+c] += factor * gy[s*width+at+c]
					}
				}
			}
			at += table.Dim
		}
		for i := range grads[t] {
			if n := times[int64(i/table.Dim)]; table.ScaleGradByFreq && n > 0 {
				grads[t][i] /= n
			}
		}
	}
	return out, grads
}

// largest returns the id of a list whose row has the largest element in a
// column, and the element; -1 for an empty list.
func (sh *shelf) largest(t int, ids []int64, column int, table []float64) (id int, most float64) {
	id = -1
	for _, i := range ids {
		if p := sh.tables[t].PaddingIdx; p != nil && int(i) == *p {
			continue
		}
		if v := table[int(i)*sh.tables[t].Dim+column]; id < 0 || v > most {
			id, most = int(i), v
		}
	}
	return id, most
}

// renormed returns the tables after the lookups of a batch.
func (sh *shelf) renormed(b *batch, tables [][]float64) [][]float64 {
	var after [][]float64
	for t, table := range sh.tables {
		values := tables[t]
		if table.MaxNorm != nil {
			p := 2.0
			if table.NormType != nil {
				p = *table.NormType
			}
			for _, name := range table.Features {
				for _, ids := range b.lists[index(b.features, name)] {
					values = renormed(values, table.Dim, ids, *table.MaxNorm, p)
				}
			}
		}
		after = append(after, values)
	}
	return after
}

func index(names []string, name string) int {
	for i, n := range names {
		if n == name {
			return i
		}
	}
	return -1
}

// close is near for the tables' type. Rows that were scaled to a norm are rounded before
// they are added up.
func (sh *shelf) close(what string, t *tensor.Tensor, want []float64) error {
	if sh.tables[0].DType != tensor.BFloat16 {
		return close32(what, t, want)
	}
	scaled := 0.0
	for _, table := range sh.tables {
		if table.MaxNorm != nil {
			scaled = 4
		}
	}
	return half.near(what, t, want, scaled)
}

// close32 is near for float32.
func close32(what string, t *tensor.Tensor, want []float64) error {
	got := tensor.ToSlice[float64](tensor.Cast(t, tensor.Float64))
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d elements, want %d", what, len(got), len(want))
	}
	for i, g := range got {
		if d := g - want[i]; !(d < 1e-5 && d > -1e-5) {
			return fmt.Errorf("%s: element %d is %v, want %v", what, i, g, want[i])
		}
	}
	return nil
}

// shelfOn has tables of all kinds for a mesh with the given axes: uneven rows,
// a table of fewer rows than ranks, one without rows, features that share one.
func shelfOn(axes []string, rank int, layouts ...embedding.Layout) *shelf {
	last := axes[len(axes)-1]
	if layouts == nil {
		layouts = []embedding.Layout{embedding.RowWise(last), embedding.TableWise(last, rank), embedding.ColumnWise(axes[0]),
			embedding.Replicated(), embedding.RowWise(axes...)}
	}
	at := func(i int) embedding.Layout { return layouts[i%len(layouts)] }
	table := func(name string, i, rows, dim int, mode embedding.Mode, padding *int, features ...string) embedding.CollectionTable {
		return embedding.CollectionTable{Config: embedding.Config{Name: name, Rows: rows, Dim: dim, Layout: at(i),
			Key: dtensor.Key{Seed: 7, Stream: uint64(i)}, PaddingIdx: padding}, Features: features, Mode: mode}
	}
	return &shelf{[]embedding.CollectionTable{
		table("wide", 0, 11, 5, embedding.Sum, nil, "a", "d"),
		table("one", 1, 3, 2, embedding.Sum, nil, "b"),
		table("columns", 2, 7, 5, embedding.Sum, new(2), "c"),
		table("copy", 3, 4, 1, embedding.Sum, new(1), "e"),
		table("rest", 4, 2, 3, embedding.Sum, nil, "f"),
		table("unused", 5, 6, 3, embedding.Sum, nil),
		table("empty", 6, 0, 2, embedding.Sum, nil, "g"),
	}}
}

var shelfFeatures, shelfRows = []string{"g", "a", "b", "x", "c", "d", "e", "f"}, []int{0, 11, 3, 9, 7, 11, 4, 2}

// check compares Bags, its gradients, and Rows with the loops.
func (sh *shelf) check(ctx context.Context, m *dtensor.Mesh, b *batch, places []layout.Placement, rows bool) error {
	c := embedding.NewCollection(m, sh.tables...)
	j, err := b.place(m, places...)
	if err != nil {
		return err
	}
	var tables [][]float64
	for _, p := range c.Params() {
		tables = append(tables, tensor.ToSlice[float64](tensor.Cast(p.Full(), tensor.Float64)))
	}
	tables = sh.renormed(b, tables)
	samples, width := j.Samples(), sh.width()
	gy := half.numbers(meshtest.Numbers(samples*width, 3, 1))
	out, want := sh.bags(b, tables, gy)
	g := tensor.Cast(tensor.FromSlice(m.Device(), gy, samples, width), tensor.Float32)
	var failed error
	note := func(err error) {
		if failed == nil {
			failed = err
		}
	}
	record := m.Comm().Record()
	_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		p := c.Bags(j)
		note(samePlaces(p.Values().Placements(), places))
		note(sh.close("bags", p.Values().Full(), out))
		for _, table := range sh.tables {
			for _, name := range table.Features {
				if f := p.Feature(name); f.Dim(0) != samples || f.Dim(1) != table.Dim {
					note(fmt.Errorf("feature %s is %v", name, f))
				}
			}
		}
		return p.Values().Cast(tensor.Float32).Mul(dtensor.Distribute(m, g, places...)).Sum(nil, false)
	}, c.Params()...)
	events := record.Stop()
	if err != nil {
		return err
	}
	ids := 0
	for f := range b.lists {
		for _, list := range b.lists[f] {
			ids += len(list)
		}
	}
	ranks := m.Comm().Size() // each id once, with a row of at most 5 to each rank and a count, or the heads of all ranks
	note(sh.bagsTally(m, places).check(events, "Bags", ranks*max(32*ids, 8*(4+ranks*len(sh.tables)))))
	for i, p := range c.Params() {
		note(sh.close("table "+sh.tables[i].Name, p.Full(), tables[i]))
	}
	for i, grad := range grads {
		if _, ok := grad.Rows(); !ok {
			return fmt.Errorf("the gradient of table %d is dense", i)
		}
		note(sh.close("gradient of "+sh.tables[i].Name, grad.Dense().Full(), want[i]))
	}
	if failed != nil || !rows {
		return failed
	}
	return sh.checkRows(ctx, m, c, b, j, tables)
}

// checkRows is check for Rows. Each feature's gradient is a multiple of its
// rows, and feature d is not used.
func (sh *shelf) checkRows(ctx context.Context, m *dtensor.Mesh, c *embedding.Collection, b *batch, j *embedding.Jagged,
	tables [][]float64) error {
	var failed error
	want := make([][]float64, len(tables))
	_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		u := c.Rows(j)
		total := dtensor.Zeros(m, tensor.Float32, nil, make([]layout.Placement, len(m.Axes()))...)
		for t, table := range sh.tables {
			want[t] = make([]float64, len(tables[t]))
			times := map[int64]float64{}
			for i, name := range table.Features {
				var ids []int64
				for _, list := range b.lists[index(b.features, name)] {
					ids = append(ids, list...)
				}
				for _, id := range ids {
					times[id]++
				}
				y := u.Feature(name)
				if err := sh.close("rows of "+name, y.Full(), lookUp(tables[t], table.Dim, ids)); failed == nil {
					failed = err
				}
				if name == "d" {
					continue
				}
				total = total.Add(y.Cast(tensor.Float32).Scale(float64(i+2)).Sum(nil, false))
				for _, id := range ids {
					if table.PaddingIdx == nil || int(id) != *table.PaddingIdx {
						for k := range table.Dim {
							want[t][int(id)*table.Dim+k] += float64(i + 2)
						}
					}
				}
			}
			for i := range want[t] {
				if n := times[int64(i/table.Dim)]; table.ScaleGradByFreq && n > 0 {
					want[t][i] /= n
				}
			}
		}
		if !dtensor.Tracked(total) { // no feature is used, and a loss has to depend on something
			total = total.Add(c.Params()[0].Cast(tensor.Float32).Sum(nil, false).Scale(0))
		}
		return total
	}, c.Params()...)
	for i := range grads {
		if err := sh.close("gradient of the rows of "+sh.tables[i].Name, grads[i].Dense().Full(), want[i]); failed == nil {
			failed = err
		}
	}
	if err != nil {
		return err
	}
	return failed
}
