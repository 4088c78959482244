package embedding_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// With SameBits the bags of a collection and the gradients of its tables have the bits of
// one rank on every mesh, for samples that are divided unevenly or not at all.
func TestBagsHaveTheSameBits(t *testing.T) {
	for _, rows := range []bool{false, true} {
		var want []float64
		for _, c := range []struct {
			mesh   []int
			places []layout.Placement
		}{
			{[]int{1, 1}, nil},
			{[]int{2, 1}, []layout.Placement{layout.Shard(0), layout.Replicate()}},
			{[]int{1, 3}, []layout.Placement{layout.Replicate(), layout.Shard(0)}},
			{[]int{2, 2}, []layout.Placement{layout.Shard(0), layout.Shard(0)}},
			{[]int{2, 2}, []layout.Placement{layout.Shard(0), layout.Replicate()}},
			{[]int{1, 7}, []layout.Placement{layout.Replicate(), layout.Shard(0)}},
		} {
			if rows && c.places != nil && c.places[0].IsShard() && c.places[1].IsShard() { // Rows refuses two axes
				continue
			}
			var got []float64
			meshtest.On(t, c.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				m.SetSameBits(true)
				numbers, err := bagsAndGradients(ctx, m, c.places, rows)
				if err == nil && m.Comm().Rank() == 0 {
					got = numbers
				}
				return err
			})
			if want == nil {
				want = got
			}
			for i := range want {
				if math.Float64bits(got[i]) != math.Float64bits(want[i]) {
					t.Fatalf("mesh %v, samples %v: number %d is %v, on one rank %v", c.mesh, c.places, i, got[i], want[i])
				}
			}
		}
	}
}

// bagsAndGradients returns bags of weighted ids of two tables, or with rows these too, and the tables' gradients.
func bagsAndGradients(ctx context.Context, m *dtensor.Mesh, places []layout.Placement, rows bool) ([]float64, error) {
	const samples, width = 5, 4
	lengths := [][]int{{3, 0, 4, 1, 2}, {1, 1, 0, 5, 2}}
	c := embedding.NewCollection(m,
		embedding.CollectionTable{Features: []string{"x"}, Mode: embedding.Sum,
			Config: embedding.Config{Name: "x", Rows: 3, Dim: width, Layout: embedding.RowWise("b"), Std: 1}},
		embedding.CollectionTable{Features: []string{"y"}, Mode: embedding.Sum,
			Config: embedding.Config{Name: "y", Rows: 2, Dim: width, Layout: embedding.ColumnWise("b"), Key: dtensor.Key{Seed: 2}, Std: 1}})
	dtensor.Keep(c.Params()...)
	if places == nil {
		places = m.Every(layout.Replicate())
	}
	spread := dtensor.Zeros(m, tensor.Int64, []int{samples}, places...)
	offset, _ := spread.Offset()
	first, n := offset[0], spread.LocalShape()[0]
	var mine []int
	var ids []int64
	var weights []float32
	for f, of := range lengths {
		for s, count := range of {
			if s < first || s >= first+n {
				continue
			}
			mine = append(mine, count)
			for k := range count {
				ids = append(ids, int64((s+k)%(3-f)))
				weights = append(weights, float32(math.Sin(float64(10*s+k+f))))
			}
		}
	}
	j, err := embedding.NewJagged(m, []string{"x", "y"}, samples, mine, ids, weights, places...)
	if err != nil {
		return nil, err
	}
	var bags *dtensor.Tensor
	_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		bags = c.Bags(j).Values()
		dtensor.Keep(bags)
		return bags.Mul(bags.Sin()).Sum(nil, false)
	}, c.Params()...)
	if err != nil {
		return nil, err
	}
	numbers := tensor.ToSlice[float64](tensor.Cast(bags.Full(), tensor.Float64))
	if rows {
		var features []*dtensor.Tensor
		_, more, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			u, sum := c.Rows(j), dtensor.Zeros(m, tensor.Float32, nil, m.Every(layout.Replicate())...)
			for _, name := range []string{"x", "y"} {
				f := u.Feature(name)
				features = append(features, f)
				dtensor.Keep(f)
				sum = sum.Add(f.Mul(f.Sin()).Sum(nil, false))
			}
			return sum
		}, c.Params()...)
		if err != nil {
			return nil, err
		}
		for _, f := range features {
			numbers = append(numbers, whole(f)...)
		}
		grads = append(grads, more...)
	}
	for _, g := range grads {
		dense := g.Dense()
		if rows, ok := g.Rows(); ok {
			dense = rows.Dense()
		}
		numbers = append(numbers, tensor.ToSlice[float64](tensor.Cast(dense.Full(), tensor.Float64))...)
	}
	return numbers, nil
}

// With SameBits the bags of a table and the gradients of the table and the weights have the bits of one rank's, in every
// layout and mode, with a padding and without.
func TestTableBagsHaveTheSameBits(t *testing.T) {
	const rows, dim, n = 9, 3, 24
	for _, mode := range []embedding.Mode{embedding.Mean, embedding.Sum, embedding.Max} {
		for _, fixed := range []bool{true, false} {
			var want []float64
			for _, c := range []struct {
				mesh   []int
				layout func(axis string) embedding.Layout
			}{
				{[]int{1}, func(axis string) embedding.Layout { return embedding.RowWise(axis) }},
				{[]int{2}, func(axis string) embedding.Layout { return embedding.RowWise(axis) }},
				{[]int{3}, func(axis string) embedding.Layout { return embedding.RowWise(axis) }},
				{[]int{2, 2}, func(axis string) embedding.Layout { return embedding.RowWise(axis) }},
				{[]int{3}, func(axis string) embedding.Layout { return embedding.RowCyclic(axis) }},
				{[]int{2}, func(axis string) embedding.Layout { return embedding.TableWise(axis, 1) }},
				{[]int{2}, func(string) embedding.Layout { return embedding.Replicated() }},
				{[]int{2}, func(axis string) embedding.Layout { return embedding.ColumnWise(axis) }},
				{[]int{2, 2}, func(axis string) embedding.Layout { return embedding.ColumnWise(axis) }},
			} {
				meshtest.On(t, c.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
					m.SetSameBits(true)
					padding := 4
					table := embedding.NewTable(m, embedding.Config{Rows: rows, Dim: dim, Layout: c.layout(m.Axes()[0].Name), Key: dtensor.Key{Seed: 4},
						PaddingIdx: &padding})
					ids, all := make([]int64, n), m.Every(replicate)
					for i := range ids {
						ids[i] = int64(i * i * 7 % rows)
					}
					at, starts := meshtest.Place(m, ids, []int{n}, all...), meshtest.Place(m, []int64{0, 5, 5, 11, 17}, []int{5}, all...)
					if fixed {
						at, starts = at.Reshape(n/3, 3).Redistribute(m.Every(shard0)...), nil
					}
					factors := dtensor.Normal(m, dtensor.Key{Seed: 8}, 0, 1, at.Shape(), all...)
					params := []*dtensor.Tensor{table.Weight(), factors}
					if mode != embedding.Sum {
						params = params[:1]
					}
					value, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
						var weights *dtensor.Tensor
						if mode == embedding.Sum {
							weights = factors
						}
						y := table.Bag(at, starts, weights, mode)
						return y.Mul(dtensor.Normal(m, dtensor.Key{Seed: 77}, 0, 1, y.Shape(), all...)).Tanh().Sum(nil, false)
					}, params...)
					if err != nil {
						return err
					}
					got := []float64{value.Full().Item()}
					for _, g := range grads {
						if r, ok := g.Rows(); ok {
							g = dtensor.Dense(r.Dense())
						}
						got = append(got, whole(g.Dense())...)
					}
					if m.Comm().Rank() > 0 {
						return nil
					}
					if want == nil {
						want = got
					}
					if !slices.Equal(got, want) {
						return fmt.Errorf("%v, bags of one length %v, %v: %x, on one rank %x", mode, fixed, table, got, want)
					}
					return nil
				})
			}
		}
	}
}

// With SameBits lookups and bags of a dynamic table, its rows after some steps, and the gradients of the weights of a bag
// and of factors by position have the bits of one rank's, whatever ranks have the keys.
func TestDynamicHasTheSameBits(t *testing.T) {
	const steps, population, dim = 3, 40, 5
	var want string
	for _, mesh := range [][]int{{1}, {2}, {3}, {4}, {2, 2}, {3, 2}} {
		for _, place := range []layout.Placement{replicate, shard0} {
			var got string
			meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				m.SetSameBits(true)
				rng := rand.New(rand.NewPCG(9, 0)) // the same draws on all ranks
				d := dynamicOn(rand.New(rand.NewPCG(1, 0)), m, embedding.DynamicConfig{Name: "users", Dim: dim, Budget: 256 * 4 * 20, Seed: 5})
				distribute := func(list []int64, shape ...int) *dtensor.Tensor {
					return meshtest.Place(m, list, shape, slices.Repeat([]layout.Placement{place}, len(mesh))...)
				}
				key := func() int64 { return rng.Int64N(population) * (math.MaxInt64 / population) }
				positions, err := embedding.NewPositionWeights(m, []string{"f"}, []int{3})
				if err != nil {
					return err
				}
				text := ""
				for step := range steps {
					keys := make([]int64, 24)
					for i := range keys {
						keys[i] = key()
					}
					alone, equal, ragged := distribute(keys, 24), distribute(keys, 8, 3), distribute(keys, 24)
					starts := meshtest.Place(m, []int64{0, 5, 5, 11, 23}, []int{5}, m.Every(replicate)...)
					factors := dtensor.Normal(m, dtensor.Key{Seed: uint64(step)}, 0, 1, []int{24}, m.Every(replicate)...)
					offset, _ := equal.Offset()
					mine := equal.LocalShape()[0] // lists of three keys
					j, err := embedding.NewJagged(m, []string{"f"}, 8, slices.Repeat([]int{3}, mine), keys[3*offset[0]:][:3*mine], nil,
						equal.Placements()...)
					if err != nil {
						return err
					}
					if j, err = positions.Apply(j); err != nil {
						return err
					}
					value, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
						a := d.Lookup(alone)
						b := d.Bag(equal, nil, nil, embedding.Mode(step))
						c := d.Bag(ragged, starts, factors, embedding.Sum)
						square := func(x *dtensor.Tensor) *dtensor.Tensor {
							return x.Mul(dtensor.Normal(m, dtensor.Key{Seed: 77}, 0, 1, x.Shape(), m.Every(replicate)...)).Tanh().Sum(nil, false)
						}
						return square(a).Add(square(b)).Add(square(c)).Add(square(d.Bags(j, "f", embedding.Sum)))
					}, d.Param(), factors, positions.Params()[0])
					if err != nil {
						return err
					}
					text += fmt.Sprintf("%x %x %x ", value.Full().Item(), whole(grads[1].Dense()), whole(grads[2].Dense()))
					d.Advance()
				}
				all := make([]int64, population)
				for i := range all {
					all[i] = int64(i) * (math.MaxInt64 / population)
				}
				text += fmt.Sprintf("%x", rowsOf(m, d, all))
				if m.Comm().Rank() == 0 {
					got = text
				}
				return nil
			})
			if want == "" {
				want = got
			}
			if got != want {
				a, b := strings.Fields(got), strings.Fields(want)
				for i := range a {
					if a[i] != b[i] {
						t.Errorf("mesh %v, keys %v: number %d of %d is %s, on one rank %s", mesh, place, i, len(a), a[i], b[i])
						break
					}
				}
			}
		}
	}
}

// With SameBits the gradient of a table that is looked up several times has the bits of one rank's, though
// each rank has another part of the rows of each lookup.
func TestSeveralLookupsHaveTheSameBits(t *testing.T) {
	const rows, dim = 7, 3
	var want []float64
	for _, mesh := range [][]int{{1}, {2}, {3}, {2, 2}, {5}} {
		meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			m.SetSameBits(true)
			rng := rand.New(rand.NewPCG(3, 0)) // the same draws on all ranks
			layout := embedding.RowWise(m.Axes()[0].Name)
			table := embedding.NewTable(m, embedding.Config{Rows: rows, Dim: dim, Layout: layout, Key: dtensor.Key{Seed: 4}})
			_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
				sum := dtensor.Zeros(m, tensor.Float32, nil, m.Every(replicate)...)
				for range 5 {
					ids := make([]int64, 9)
					for i := range ids {
						ids[i] = rng.Int64N(rows)
					}
					factors := dtensor.Normal(m, dtensor.Key{Seed: rng.Uint64()}, 0, 1, []int{9, dim}, m.Every(replicate)...)
					sum = sum.Add(table.Lookup(meshtest.Place(m, ids, []int{9}, m.Every(replicate)...)).Mul(factors).Sum(nil, false))
				}
				return sum
			}, table.Weight())
			if err != nil {
				return err
			}
			r, ok := grads[0].Rows()
			if !ok {
				return fmt.Errorf("the gradient is dense")
			}
			got := whole(r.Dense())
			if m.Comm().Rank() > 0 {
				return nil
			}
			if want == nil {
				want = got
			}
			if !slices.Equal(got, want) {
				return fmt.Errorf("the gradient is %x, on one rank %x", got, want)
			}
			return nil
		})
	}
}

// With SameBits tables with a MaxNorm have the bits of one rank's after lookups, bags and lookups of a collection, in every
// layout, of columns that are divided unevenly or of which a rank has none too.
func TestMaxNormHasTheSameBits(t *testing.T) {
	const rows, dim = 9, 5
	for _, p := range []float64{1, 2, 3, math.Inf(1)} {
		for _, dt := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
			var want []float64
			for _, c := range []struct {
				mesh   []int
				layout embedding.Layout
			}{
				{[]int{1, 1}, embedding.Replicated()},
				{[]int{1, 2}, embedding.ColumnWise("b")},
				{[]int{1, 3}, embedding.ColumnWise("b")},
				{[]int{1, 3}, embedding.ColumnWiseOn("b", 0, 2)},
				{[]int{2, 2}, embedding.ColumnWise("b")},
				{[]int{2, 2}, embedding.ColumnWise("a", "b")},
				{[]int{2, 2}, embedding.Grid("a", "b")},
				{[]int{2, 2}, embedding.Grid("b", "a")},
				{[]int{1, 2}, embedding.RowCyclic("b")},
				{[]int{2, 1}, embedding.Replicated()},
				{[]int{1, 7}, embedding.ColumnWise("b")},
			} {
				meshtest.On(t, c.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
					m.SetSameBits(true)
					config := embedding.Config{Name: "t", Rows: rows, Dim: dim, DType: dt, Layout: c.layout, Key: dtensor.Key{Seed: 4},
						MaxNorm: new(0.9), NormType: new(p)}
					other := config
					other.Name, other.Key.Seed = "u", 5
					table := embedding.NewTable(m, config)
					all := embedding.NewCollection(m, embedding.CollectionTable{Config: config, Features: []string{"t"}},
						embedding.CollectionTable{Config: other, Features: []string{"u"}})
					ids := func(list ...int64) *dtensor.Tensor {
						return meshtest.Place(m, list, []int{len(list)}, shard0, shard0)
					}
					j, err := embedding.NewJagged(m, []string{"t", "u"}, 2, []int{3, 1, 0, 2}, []int64{1, 5, 1, 8, 2, 3}, nil)
					if err != nil {
						return err
					}
					var got []float64
					for _, y := range []*dtensor.Tensor{table.Lookup(ids(8, 1, 4, 1)), table.Bag(ids(7, 1, 0), ids(0, 2), nil, embedding.Sum),
						all.Bags(j).Values(), all.Rows(j).Feature("u"), table.Weight(), all.Tables()[0].Weight(), all.Tables()[1].Weight()} {
						got = append(got, whole(y)...)
					}
					if m.Comm().Rank() > 0 {
						return nil
					}
					if want == nil {
						want = got
					}
					if !slices.Equal(got, want) {
						return fmt.Errorf("norm %v of %v, %v on mesh %v: %x, on one rank %x", p, dt, c.layout, c.mesh, got, want)
					}
					return nil
				})
			}
		}
	}
}

// With SameBits lists of one id each, in tables of which some are divided by columns, whose rows then come in parts, have the
// gradients of one rank's.
func TestEvenBagsHaveTheSameBits(t *testing.T) {
	const rows, dim, samples = 3, 4, 12
	names := []string{"a", "b", "c", "d", "e"}
	var want []float64
	for _, c := range []struct {
		mesh    []int
		layouts [2]embedding.Layout
	}{
		{[]int{1}, [2]embedding.Layout{}},
		{[]int{2}, [2]embedding.Layout{embedding.RowWise("a"), embedding.ColumnWise("a")}},
		{[]int{2}, [2]embedding.Layout{embedding.RowWise("a"), embedding.RowCyclic("a")}},
		{[]int{3}, [2]embedding.Layout{embedding.ColumnWise("a"), embedding.TableWise("a", 1)}},
		{[]int{4}, [2]embedding.Layout{embedding.Replicated(), embedding.Replicated()}},
	} {
		meshtest.On(t, c.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			m.SetSameBits(true)
			config := embedding.Config{Name: "x", Rows: rows, Dim: dim, Layout: c.layouts[0], Key: dtensor.Key{Seed: 1}}
			other := embedding.Config{Name: "y", Rows: rows, Dim: dim, Layout: c.layouts[1], Key: dtensor.Key{Seed: 2}}
			all := embedding.NewCollection(m, embedding.CollectionTable{Config: config, Features: names[:3]},
				embedding.CollectionTable{Config: other, Features: names[3:]})
			spread := dtensor.Zeros(m, tensor.Int64, []int{samples}, shard0)
			offset, _ := spread.Offset()
			var ids []int64
			for f := range names {
				for s := offset[0]; s < offset[0]+spread.LocalShape()[0]; s++ {
					ids = append(ids, int64((s*s+f)%rows))
				}
			}
			j, err := embedding.NewJagged(m, names, samples, slices.Repeat([]int{1}, len(ids)), ids, nil, shard0)
			if err != nil {
				return err
			}
			_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
				y := all.Bags(j).Values()
				return y.Mul(dtensor.Normal(m, dtensor.Key{Seed: 7}, 0, 1, y.Shape(), replicate)).Sin().Sum(nil, false)
			}, all.Params()...)
			if err != nil {
				return err
			}
			var got []float64
			for _, g := range grads {
				its, _ := g.Rows()
				got = append(got, whole(its.Dense())...)
			}
			if want == nil && m.Comm().Rank() == 0 {
				want = got
			}
			if m.Comm().Rank() == 0 && !slices.Equal(got, want) {
				return fmt.Errorf("%v: the gradients are %x, on one rank %x", c.layouts, got, want)
			}
			return nil
		})
	}
}
