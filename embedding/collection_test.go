package embedding_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
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
		for _, name := range table.Features {
			f := index(b.features, name)
			for s, ids := range b.lists[f] {
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
	}
	return out, grads
}

func index(names []string, name string) int {
	for i, n := range names {
		if n == name {
			return i
		}
	}
	return -1
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
	samples, width := j.Samples(), sh.width()
	gy := numbers(samples*width, 3)
	out, want := sh.bags(b, tables, gy)
	g := tensor.Cast(tensor.FromSlice(m.Device(), gy, samples, width), tensor.Float32)
	var failed error
	note := func(err error) {
		if failed == nil {
			failed = err
		}
	}
	_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		p := c.Bags(j)
		note(samePlaces(p.Values().Placements(), places))
		note(close32("bags", p.Values().Full(), out))
		if f := p.Feature("b"); f.Dim(0) != samples || f.Dim(1) != 2 {
			note(fmt.Errorf("feature b is %v", f))
		}
		return p.Values().Mul(dtensor.Distribute(m, g, places...)).Sum(nil, false)
	}, c.Params()...)
	if err != nil {
		return err
	}
	for i, grad := range grads {
		if _, ok := grad.Rows(); !ok {
			return fmt.Errorf("the gradient of table %d is dense", i)
		}
		note(close32("gradient of "+sh.tables[i].Name, grad.Dense().Full(), want[i]))
	}
	if failed != nil || !rows {
		return failed
	}
	return sh.checkRows(ctx, m, c, b, j, tables)
}

// checkRows is check for Rows. Each feature's gradient is a multiple of its
// rows, and feature d is not used.
func (sh *shelf) checkRows(ctx context.Context, m *dtensor.Mesh, c *embedding.Collection, b *batch, j *embedding.Jagged, tables [][]float64) error {
	var failed error
	want := make([][]float64, len(tables))
	_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		u := c.Rows(j)
		total := dtensor.Zeros(m, tensor.Float32, nil, make([]layout.Placement, len(m.Axes()))...)
		for t, table := range sh.tables {
			want[t] = make([]float64, len(tables[t]))
			for i, name := range table.Features {
				var ids []int64
				for _, list := range b.lists[index(b.features, name)] {
					ids = append(ids, list...)
				}
				y := u.Feature(name)
				if err := close32("rows of "+name, y.Full(), lookUp(tables[t], table.Dim, ids)); failed == nil {
					failed = err
				}
				if name == "d" {
					continue
				}
				total = total.Add(y.Scale(float64(i+2)).Sum(nil, false))
				for _, id := range ids {
					for k := range table.Dim {
						if table.PaddingIdx == nil || int(id) != *table.PaddingIdx {
							want[t][int(id)*table.Dim+k] += float64(i + 2)
						}
					}
				}
			}
		}
		return total
	}, c.Params()...)
	for i := range grads {
		if err := close32("gradient of the rows of "+sh.tables[i].Name, grads[i].Dense().Full(), want[i]); failed == nil {
			failed = err
		}
	}
	if err != nil {
		return err
	}
	return failed
}

func TestCollection(t *testing.T) {
	for _, c := range []struct {
		mesh    []int
		samples []layout.Placement
	}{
		{[]int{1}, one(replicate)},
		{[]int{2}, one(replicate)}, {[]int{2}, one(shard0)},
		{[]int{3}, one(replicate)}, {[]int{3}, one(shard0)},
		{[]int{4}, one(shard0)},
		{[]int{2, 2}, two(replicate, replicate)}, {[]int{2, 2}, two(shard0, replicate)},
		{[]int{2, 2}, two(replicate, shard0)}, {[]int{2, 2}, two(shard0, shard0)},
		{[]int{1, 3}, two(shard0, shard0)}, {[]int{4, 1}, two(shard0, replicate)},
	} {
		t.Run(fmt.Sprint(c.mesh, c.samples), func(t *testing.T) {
			onMesh(t, c.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				axes := []string{"a", "b"}[:len(c.mesh)]
				last := c.mesh[len(c.mesh)-1]
				rows := len(c.samples) < 2 || c.samples[0] != c.samples[1] || !c.samples[0].IsShard() || c.mesh[0] == 1
				layouts := [][]embedding.Layout{nil, {embedding.RowWise(axes...)}, {embedding.Replicated()},
					{embedding.ColumnWise(axes[0]), embedding.RowWiseOn(axes[0], 0, c.mesh[0]-1)}, {embedding.TableWise(axes[0], 0), embedding.ColumnWiseOn(axes[len(axes)-1], last-1)}}
				if c.mesh[0] == 1 {
					layouts[3][1] = embedding.RowWiseOn(axes[0], 0)
				}
				if len(axes) == 2 {
					layouts = append(layouts, []embedding.Layout{embedding.Grid("a", "b"), embedding.Grid("b", "a")})
				}
				for _, l := range layouts {
					for _, samples := range []int{1, 3, 7} {
						sh := shelfOn(axes, last-1, l...)
						if err := sh.check(ctx, m, someBatch(shelfFeatures, shelfRows, samples, samples == 3), c.samples, rows); err != nil {
							return fmt.Errorf("%d samples, %v: %w", samples, l, err)
						}
						for i := range sh.tables {
							sh.tables[i].Mode = embedding.Mean
						}
						if err := sh.check(ctx, m, someBatch(shelfFeatures, shelfRows, samples, false), c.samples, false); err != nil {
							return fmt.Errorf("means of %d samples, %v: %w", samples, l, err)
						}
					}
				}
				return nil
			})
		})
	}
}

// TestCollectionBits holds that the layout of tables does not change a bit of
// what Bags returns, nor that of the batch.
func TestCollectionBits(t *testing.T) {
	b := someBatch(shelfFeatures, shelfRows, 6, true)
	var want []float32
	for _, n := range []int{1, 2, 4} {
		for _, places := range [][]layout.Placement{one(replicate), one(shard0)} {
			onMesh(t, []int{n}, func(ctx context.Context, m *dtensor.Mesh) error {
				j, err := b.place(m, places...)
				if err != nil {
					return err
				}
				got := tensor.ToSlice[float32](embedding.NewCollection(m, shelfOn([]string{"a"}, n-1).tables...).Bags(j).Values().Full())
				if m.Comm().Rank() != 0 {
					return nil
				}
				if want == nil {
					want = got
				}
				for i := range want {
					if got[i] != want[i] {
						return fmt.Errorf("element %d is %v, on one rank %v", i, got[i], want[i])
					}
				}
				return nil
			})
		}
	}
}

// TestCollectionCommunication holds the table of Collection's documentation,
// with bytes: three tables of 8 rows of 4 float32, one feature each; sample s
// has the ids 2s and 2s+1 in each, so of 4 samples two each have 4 distinct ids.
func TestCollectionCommunication(t *testing.T) {
	all := func(l embedding.Layout) []embedding.Layout { return []embedding.Layout{l, l, l} }
	for _, c := range []struct {
		name              string
		mesh              []int
		layouts           []embedding.Layout
		samples           []layout.Placement
		forward, backward cost // of the first rank
	}{
		{name: "one rank", mesh: []int{1}, layouts: all(embedding.RowWise("a")), samples: one(shard0)},
		{name: "all replicated", mesh: []int{2}, layouts: all(embedding.Replicated()), samples: one(replicate)},
		{name: "replicated samples, row-wise", mesh: []int{2}, layouts: all(embedding.RowWise("a")), samples: one(replicate),
			forward: cost{"AllToAllV 384"}}, // 3 tables · 4 rows · 16 bytes, to both
		{name: "row-wise", mesh: []int{2}, layouts: all(embedding.RowWise("a")), samples: one(shard0),
			// Rank 0 has the rows 0 to 3 and the samples 0 and 1, which want just these.
			forward: cost{"AllGather 80", "AllToAllV 96", "AllToAllV 192"}, backward: cost{"AllToAllV 192"}},
		{name: "table-wise", mesh: []int{2}, layouts: []embedding.Layout{embedding.TableWise("a", 0), embedding.TableWise("a", 1), embedding.TableWise("a", 1)}, samples: one(shard0),
			forward: cost{"AllGather 80", "AllToAllV 96", "AllToAllV 128"}, backward: cost{"AllToAllV 192"}},
		{name: "column-wise", mesh: []int{2}, layouts: all(embedding.ColumnWise("a")), samples: one(shard0),
			forward: cost{"AllGather 80", "AllToAllV 192", "AllToAllV 192"}, backward: cost{"AllToAllV 192"}},
		{name: "data-parallel", mesh: []int{2}, layouts: all(embedding.Replicated()), samples: one(shard0),
			forward: cost{"AllGather 56"}, backward: cost{"AllGather 24", "AllGatherV 288"}}, // 3 · 4 · (8 + 16)
		{name: "a layout each", mesh: []int{2}, layouts: []embedding.Layout{embedding.RowWise("a"), embedding.TableWise("a", 0), embedding.Replicated()}, samples: one(shard0),
			// The replicated table is its own asker: its part stays, but is counted.
			forward: cost{"AllGather 80", "AllToAllV 96", "AllToAllV 256"}, backward: cost{"AllToAllV 192", "AllGather 8", "AllGatherV 96"}},
		{name: "replicas of row-wise tables", mesh: []int{2, 2}, layouts: all(embedding.RowWise("b")), samples: two(shard0, replicate),
			// The ranks along b have the same samples: no ids travel.
			forward: cost{"AllGather 56", "AllToAllV 384"}, backward: cost{"AllGather 24", "AllGatherV 288"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			onMesh(t, c.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				var tables []embedding.CollectionTable
				b := &batch{}
				for i, l := range c.layouts {
					name := string(rune('p' + i))
					tables = append(tables, embedding.CollectionTable{Config: embedding.Config{Name: name, Rows: 8, Dim: 4, Layout: l}, Features: []string{name}})
					b.features = append(b.features, name)
					b.lists = append(b.lists, [][]int64{{0, 1}, {2, 3, 3}, {4, 5}, {6, 7, 6}})
				}
				col := embedding.NewCollection(m, tables...)
				j, err := b.place(m, c.samples...)
				if err != nil {
					return err
				}
				var forward, backward cost
				for range 2 { // groups of several axes are made when they are first needed
					var back *comm.Recording
					_, _, err = dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
						record := m.Comm().Record()
						y := col.Bags(j).Values()
						forward = costOf(record.Stop())
						total := y.Sum(nil, false).Reduced()
						back = m.Comm().Record()
						return total
					}, col.Params()...)
					if err != nil {
						return err
					}
					backward = costOf(back.Stop())
				}
				if m.Comm().Rank() != 0 {
					return nil
				}
				if fmt.Sprint(forward) != fmt.Sprint(append(cost{}, c.forward...)) || fmt.Sprint(backward) != fmt.Sprint(append(cost{}, c.backward...)) {
					return fmt.Errorf("communicates %v and back %v, want %v and %v", forward, backward, c.forward, c.backward)
				}
				return nil
			})
		})
	}
}

// TestCollectionBadID holds that an id of one rank's samples that its table has
// not is the same error on all ranks, and that the next batch works.
func TestCollectionBadID(t *testing.T) {
	for _, shape := range [][]int{{1}, {3}, {2, 2}} {
		onMesh(t, shape, func(ctx context.Context, m *dtensor.Mesh) error {
			axes, places := []string{"a", "b"}[:len(shape)], []layout.Placement{shard0, replicate}[:len(shape)]
			c := embedding.NewCollection(m, shelfOn(axes, 0).tables...)
			good := someBatch(shelfFeatures, shelfRows, 5, false)
			bad := someBatch(shelfFeatures, shelfRows, 5, false)
			bad.lists[5][4] = []int64{1, 11} // feature d, sample 4
			bad.lists[4][2] = []int64{-1}    // feature c comes later
			for range 2 {
				j, err := bad.place(m, places...)
				if err != nil {
					return err
				}
				err = dtensor.Try(ctx, m, func() { c.Bags(j) })
				var id *embedding.IDError
				if !errors.As(err, &id) || id.ID != 11 || fmt.Sprint(id.Position) != "[4 1]" || id.Rows != 11 || !strings.Contains(err.Error(), `feature "d" in table "wide"`) {
					return fmt.Errorf("got %v", err)
				}
				if j, err = good.place(m, places...); err != nil {
					return err
				}
				if err := dtensor.Try(ctx, m, func() { c.Bags(j); c.Rows(j) }); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

func TestCollectionRefusals(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		table := embedding.CollectionTable{Config: embedding.Config{Name: "t", Rows: 4, Dim: 2}, Features: []string{"a"}}
		other := table
		other.Name = "u"
		max := table
		max.Mode = embedding.Max
		norm := table
		norm.MaxNorm = new(1.0)
		wrong := table
		wrong.Layout = embedding.TableWise("a", 2)
		for _, c := range []struct {
			tables []embedding.CollectionTable
			says   string
		}{
			{[]embedding.CollectionTable{table, table}, `two tables are called "t"`},
			{[]embedding.CollectionTable{table, other}, `feature "a" of table "u" is one of table "t" too`},
			{[]embedding.CollectionTable{max}, `table "t": Mode is max`},
			{[]embedding.CollectionTable{norm}, `table "t": MaxNorm`},
			{[]embedding.CollectionTable{wrong}, `axis "a" has no rank 2`},
		} {
			err := dtensor.Try(ctx, m, func() { embedding.NewCollection(m, c.tables...) })
			if err == nil || !strings.Contains(err.Error(), c.says) {
				return fmt.Errorf("got %v, want %q", err, c.says)
			}
		}
		c := embedding.NewCollection(m, table)
		j, err := embedding.NewJagged(m, []string{"b"}, 1, []int{0}, nil, nil)
		if err != nil {
			return err
		}
		if err := dtensor.Try(ctx, m, func() { c.Bags(j) }); err == nil || !strings.Contains(err.Error(), `no feature "a"`) {
			return fmt.Errorf("got %v", err)
		}
		if j, err = embedding.NewJagged(m, []string{"a"}, 1, []int{1}, []int64{1}, []float32{1}); err != nil {
			return err
		}
		if err := dtensor.Try(ctx, m, func() { c.Bags(j) }); err == nil || !strings.Contains(err.Error(), "Mode mean") {
			return fmt.Errorf("got %v", err)
		}
		for _, bad := range []struct {
			features []string
			lengths  []int
			ids      []int64
			weights  []float32
			places   []layout.Placement
			says     string
		}{
			{[]string{"a", "a"}, nil, nil, nil, nil, `feature "a" is given twice`},
			{[]string{"a"}, []int{1}, nil, nil, nil, "give 3"},
			{[]string{"a"}, []int{1, -1, 0}, nil, nil, nil, "the length of sample 1"},
			{[]string{"a"}, []int{1, 1, 0}, []int64{1}, nil, nil, "add up to 2"},
			{[]string{"a"}, []int{1, 0, 0}, []int64{1}, []float32{1, 2}, nil, "2 weights for 1 ids"},
			{[]string{"a"}, nil, nil, nil, one(layout.Partial(layout.Sum)), "use Replicate or Shard"},
		} {
			if _, err := embedding.NewJagged(m, bad.features, 3, bad.lengths, bad.ids, bad.weights, bad.places...); err == nil || !strings.Contains(err.Error(), bad.says) {
				return fmt.Errorf("got %v, want %q", err, bad.says)
			}
		}
		return nil
	})
}

// TestCollectionOutside holds that ranks outside the mesh may call everything.
func TestCollectionOutside(t *testing.T) {
	commtest.Run(t, 3, func(ctx context.Context, world *comm.Comm) error {
		m, err := dtensor.NewMeshOf(world, []int{2, 0}, dtensor.Axis{Name: "a", Size: 2})
		if err != nil {
			return err
		}
		return dtensor.Try(ctx, m, func() {
			c := embedding.NewCollection(m, shelfOn([]string{"a"}, 1).tables...)
			b := someBatch(shelfFeatures, shelfRows, 4, false)
			var j *embedding.Jagged
			if j, err = b.place(m, shard0); err != nil {
				return
			}
			c.Bags(j)
			c.Rows(j)
		})
	})
}
