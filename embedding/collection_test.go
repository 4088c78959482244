package embedding_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/internal/testenv"
	"github.com/gorun-spmd/gorun/tensor"
)

func TestCollection(t *testing.T) {
	type meshed struct {
		mesh    []int
		samples []layout.Placement
	}
	for _, c := range testenv.Fewer([]meshed{
		{[]int{1}, one(replicate)},
		{[]int{2}, one(replicate)}, {[]int{2}, one(shard0)},
		{[]int{3}, one(replicate)}, {[]int{3}, one(shard0)},
		{[]int{4}, one(shard0)},
		{[]int{2, 2}, two(replicate, replicate)}, {[]int{2, 2}, two(shard0, replicate)},
		{[]int{2, 2}, two(replicate, shard0)}, {[]int{2, 2}, two(shard0, shard0)},
		{[]int{1, 3}, two(shard0, shard0)}, {[]int{4, 1}, two(shard0, replicate)},
	}, 2, 3, 7, 10) {
		t.Run(fmt.Sprint(c.mesh, c.samples), func(t *testing.T) {
			meshtest.On(t, c.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				axes := []string{"a", "b"}[:len(c.mesh)]
				last := c.mesh[len(c.mesh)-1]
				rows := len(c.samples) < 2 || c.samples[0] != c.samples[1] || !c.samples[0].IsShard() || c.mesh[0] == 1
				layouts := [][]embedding.Layout{nil, {embedding.RowWise(axes...)}, {embedding.Replicated()},
					{embedding.ColumnWise(axes[0]), embedding.RowWiseOn(axes[0], 0, c.mesh[0]-1)}, {embedding.TableWise(axes[0], 0),
						embedding.ColumnWiseOn(axes[len(axes)-1], last-1)}}
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
						for i := range sh.tables {
							sh.tables[i].ScaleGradByFreq = true
							sh.tables[i].MaxNorm = new(0.5)
							if i%3 == 0 {
								sh.tables[i].NormType = new(math.Inf(1))
							}
						}
						if err := sh.check(ctx, m, someBatch(shelfFeatures, shelfRows, samples, false), c.samples, false); err != nil {
							return fmt.Errorf("%d samples with norms and frequencies, %v: %w", samples, l, err)
						}
						for i := range sh.tables {
							sh.tables[i].ScaleGradByFreq, sh.tables[i].Mode = false, embedding.Max
						}
						if err := sh.check(ctx, m, someBatch(shelfFeatures, shelfRows, samples, false), c.samples, false); err != nil {
							return fmt.Errorf("maxima of %d samples, %v: %w", samples, l, err)
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
			meshtest.On(t, []int{n}, func(ctx context.Context, m *dtensor.Mesh) error {
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
		{name: "table-wise", mesh: []int{2}, layouts: []embedding.Layout{embedding.TableWise("a", 0), embedding.TableWise("a", 1),
			embedding.TableWise("a", 1)}, samples: one(shard0),
			forward: cost{"AllGather 80", "AllToAllV 96", "AllToAllV 128"}, backward: cost{"AllToAllV 192"}},
		{name: "column-wise", mesh: []int{2}, layouts: all(embedding.ColumnWise("a")), samples: one(shard0),
			forward: cost{"AllGather 80", "AllToAllV 192", "AllToAllV 192"}, backward: cost{"AllToAllV 192"}},
		{name: "data-parallel", mesh: []int{2}, layouts: all(embedding.Replicated()), samples: one(shard0),
			forward: cost{"AllGather 56"}, backward: cost{"AllGather 24", "AllGatherV 288"}}, // 3 · 4 · (8 + 16)
		{name: "a layout each", mesh: []int{2}, layouts: []embedding.Layout{embedding.RowWise("a"), embedding.TableWise("a", 0),
			embedding.Replicated()}, samples: one(shard0),
			// The replicated table is its own asker: its part stays, but is counted.
			forward: cost{"AllGather 80", "AllToAllV 96", "AllToAllV 256"}, backward: cost{"AllToAllV 192", "AllGather 8", "AllGatherV 96"}},
		{name: "replicas of row-wise tables", mesh: []int{2, 2}, layouts: all(embedding.RowWise("b")), samples: two(shard0, replicate),
			// The ranks along b have the same samples: no ids are sent.
			forward: cost{"AllGather 56", "AllToAllV 384"}, backward: cost{"AllGather 24", "AllGatherV 288"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			meshtest.On(t, c.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				var tables []embedding.CollectionTable
				b := &batch{}
				for i, l := range c.layouts {
					name := string(rune('p' + i))
					tables = append(tables, embedding.CollectionTable{Config: embedding.Config{Name: name, Rows: 8, Dim: 4, Layout: l},
						Features: []string{name}})
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
				if fmt.Sprint(forward) != fmt.Sprint(append(cost{}, c.forward...)) ||
					fmt.Sprint(backward) != fmt.Sprint(append(cost{}, c.backward...)) {
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
		meshtest.On(t, shape, func(ctx context.Context, m *dtensor.Mesh) error {
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
				if !errors.As(err, &id) || id.ID != 11 || fmt.Sprint(id.Position) != "[4 1]" || id.Rows != 11 ||
					!strings.Contains(err.Error(), `feature "d" in table "wide"`) {
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
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		table := embedding.CollectionTable{Config: embedding.Config{Name: "t", Rows: 4, Dim: 2}, Features: []string{"a"}}
		other := table
		other.Name = "u"
		most := table
		most.Mode, most.ScaleGradByFreq = embedding.Max, true
		norm := table
		norm.MaxNorm = new(0.0)
		wrong := table
		wrong.Layout = embedding.TableWise("a", 2)
		for _, c := range []struct {
			tables []embedding.CollectionTable
			says   string
		}{
			{[]embedding.CollectionTable{table, table}, `two tables are called "t"`},
			{[]embedding.CollectionTable{table, other}, `feature "a" of table "u" is one of table "t" too`},
			{[]embedding.CollectionTable{most}, `table "t": ScaleGradByFreq is not defined for Mode Max`},
			{[]embedding.CollectionTable{norm}, `MaxNorm is 0 for table "t"`},
			{[]embedding.CollectionTable{wrong}, `axis "a" has no rank 2`},
		} {
			err := dtensor.Try(ctx, m, func() { embedding.NewCollection(m, c.tables...) })
			if err == nil || !strings.Contains(err.Error(), c.says) {
				return fmt.Errorf("got %v, want %q", err, c.says)
			}
		}
		c := embedding.NewCollection(m, table)
		var many []string
		for i := range 100 {
			many = append(many, fmt.Sprint("feature", i))
		}
		j, err := embedding.NewJagged(m, many, 1, make([]int, len(many)), nil, nil)
		if err != nil {
			return err
		}
		if err := dtensor.Try(ctx, m, func() { c.Bags(j) }); err == nil || len(err.Error()) > 400 ||
			!strings.Contains(err.Error(), `no feature "a", which table "t" needs; it has "feature0", "feature1", `) {
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
			if _, err := embedding.NewJagged(m, bad.features, 3, bad.lengths, bad.ids, bad.weights, bad.places...); err == nil ||
				!strings.Contains(err.Error(), bad.says) || !strings.Contains(err.Error(), "(at embedding/collection_test.go:") {
				return fmt.Errorf("got %v, want %q", err, bad.says)
			}
		}
		return nil
	})
}

// TestJagged asks each rank for its own samples, and one outside the mesh for none.
func TestJagged(t *testing.T) {
	commtest.Run(t, 3, func(ctx context.Context, world *comm.Comm) error {
		m, err := dtensor.NewMeshOf(world, []int{0, 1}, dtensor.Axis{Name: "a", Size: 2})
		if err != nil {
			return err
		}
		// Of three samples rank 0 has two.
		lengths, ids := [][]int{{2, 1, 1, 3}, {0, 1}, nil}[world.Rank()], [][]int64{{4, 9, 1, 7, 7, 2, 5}, {8}, nil}[world.Rank()]
		j, err := embedding.NewJagged(m, []string{"user", "item"}, 3, lengths, ids, nil, shard0)
		if err != nil {
			return err
		}
		users, ok := j.Lengths("user")
		items, found := j.Lengths("item")
		if _, other := j.Lengths("shop"); !ok || !found || other {
			return fmt.Errorf("user found: %v, item: %v, shop: %v", ok, found, other)
		}
		got := fmt.Sprint(j.Features(), j.Samples(), users, items)
		if want := []string{"[user item] 3 [2 1] [1 3]", "[user item] 3 [0] [1]", "[user item] 3 [] []"}[world.Rank()]; got != want {
			return fmt.Errorf("got %s, want %s", got, want)
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
