package embedding_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// A stepper changes the rows of one table by their gradients.
type stepper func(rows *dtensor.Rows, rate float64)

// makers make a stepper for a table; package optim has the same ones, for any
// layout, and examples/recsys tests these.
var makers = map[string]func(w *dtensor.Tensor) stepper{
	"row-wise Adagrad": func(w *dtensor.Tensor) stepper {
		sums := tensor.Zeros(w.Local().Device(), w.DType().Wide(), w.Local().Dim(0)).Persist()
		return func(rows *dtensor.Rows, rate float64) {
			tensor.Adagrad{LR: rate, Eps: 1e-10}.StepRows(w.Local(), local(w, rows), sums, nil)
		}
	},
	"SGD": func(w *dtensor.Tensor) stepper {
		return func(rows *dtensor.Rows, rate float64) { tensor.SGD{LR: rate}.StepRows(w.Local(), local(w, rows)) }
	},
	"SparseAdam": func(w *dtensor.Tensor) stepper {
		zeros := func() *tensor.Tensor {
			return tensor.Zeros(w.Local().Device(), w.DType().Wide(), w.Local().Shape()...).Persist()
		}
		m, v, step := zeros(), zeros(), 0
		return func(rows *dtensor.Rows, rate float64) {
			step++
			tensor.Adam{LR: rate, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}.StepRows(w.Local(), local(w, rows), m, v, step)
		}
	},
}

// local returns rows counted from the first one of this rank.
func local(w *dtensor.Tensor, rows *dtensor.Rows) tensor.Rows {
	offset, _ := w.Offset()
	rows = rows.Coalesce()
	return tensor.Rows{Index: tensor.AddScalar(rows.Index, -float64(offset[0])), Values: rows.Values}
}

// A twin trains two equal sets of tables, one of them fused, and compares their
// bits after each of three steps.
type twin struct {
	plain, fused []*embedding.Table
	forward      func(tables []*embedding.Table, head *dtensor.Tensor) *dtensor.Tensor
}

func (w *twin) check(ctx context.Context, m *dtensor.Mesh, maker func(w *dtensor.Tensor) stepper) error {
	head := dtensor.Full(m, tensor.Float32, 0.5, []int{1}, replicated(m)...)
	step := 0
	rate := func() float64 { return 0.1 / float64(step+1) }
	for _, t := range w.fused {
		step := maker(t.Weight())
		t.Fuse(func(rows *dtensor.Rows) error { step(rows, rate()); return nil })
	}
	var steps []stepper
	for _, t := range w.plain {
		steps = append(steps, maker(t.Weight()))
	}
	for ; step < 3; step++ {
		var calls [2]string
		var heads [2][]float64
		for i, tables := range [][]*embedding.Table{w.plain, w.fused} {
			record := m.Comm().Record()
			params := []*dtensor.Tensor{head}
			for _, t := range tables {
				params = append(params, t.Param())
			}
			_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return w.forward(tables, head) }, params...)
			if err != nil {
				return err
			}
			heads[i] = floats(grads[0].Dense())
			if i == 0 {
				for k, step := range steps {
					rows, ok := grads[1+k].Rows()
					if !ok {
						return fmt.Errorf("the gradient of table %d is dense", k)
					}
					step(rows, rate())
				}
			} else if grads[1].Dense().Numel() != 1 {
				return fmt.Errorf("a fused table has the gradient %v", grads[1].Dense())
			}
			record.Stop()
			calls[i] = record.Stats().Calls()
		}
		if calls[0] != calls[1] && step > 0 { // groups are made in the first step
			return fmt.Errorf("fused makes the calls %s, unfused %s", calls[1], calls[0])
		}
		if !slices.Equal(heads[0], heads[1]) {
			return fmt.Errorf("the gradient of the head is %v, unfused %v", heads[1], heads[0])
		}
		for k := range w.plain {
			if got, want := floats(w.fused[k].Weight()), floats(w.plain[k].Weight()); !slices.Equal(got, want) {
				return fmt.Errorf("step %d: table %d is %v, unfused %v", step, k, got, want)
			}
		}
	}
	return nil
}

func replicated(m *dtensor.Mesh) []layout.Placement { return make([]layout.Placement, len(m.Axes())) }

func TestFusedLookups(t *testing.T) {
	for name, maker := range makers {
		t.Run(name, func(t *testing.T) {
			for _, c := range []struct {
				mesh   []int
				layout embedding.Layout
				ids    []layout.Placement
				dtype  tensor.DType // 0: float32
			}{
				{[]int{1}, embedding.Replicated(), one(replicate), 0}, {[]int{2}, embedding.RowWise("a"), one(shard0), 0},
				{[]int{2}, embedding.Replicated(), one(shard0), 0},
				{[]int{3}, embedding.RowWise("a"), one(replicate), 0}, {[]int{3}, embedding.ColumnWise("a"), one(shard0), 0},
				{[]int{4}, embedding.TableWise("a", 2), one(shard0), 0},
				{[]int{2, 2}, embedding.RowWise("b"), two(shard0, replicate), 0},
				{[]int{2, 2}, embedding.Grid("b", "a"), two(replicate, shard0), tensor.BFloat16},
				{[]int{2}, embedding.RowWise("a"), one(shard0), tensor.BFloat16},
			} {
				meshtest.On(t, c.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
					tables := func() []*embedding.Table {
						return []*embedding.Table{embedding.NewTable(m,
							embedding.Config{Rows: 7, Dim: 5, Layout: c.layout, PaddingIdx: new(1), DType: c.dtype})}
					}
					ids := meshtest.Place(m, someIDs(6, 7, 2), []int{6}, c.ids...)
					more := meshtest.Place(m, someIDs(6, 7, 5), []int{2, 3}, c.ids...)
					w := &twin{plain: tables(), fused: tables(), forward: func(tables []*embedding.Table, head *dtensor.Tensor) *dtensor.Tensor {
						a, b := tables[0].Lookup(ids).Cast(tensor.Float32), tables[0].Bag(more, nil, nil, embedding.Mean).Cast(tensor.Float32)
						tables[0].Lookup(more) // its result is not used
						return a.Mul(a).Sum(nil, false).Add(b.Mul(b).Sum(nil, false)).Mul(head).Sum(nil, false)
					}}
					if err := w.check(ctx, m, maker); err != nil {
						return fmt.Errorf("%v, ids %v: %w", c.layout, c.ids, err)
					}
					return nil
				})
			}
		})
	}
}

func TestFusedCollection(t *testing.T) {
	for name, maker := range makers {
		for _, c := range []struct {
			mesh    []int
			samples []layout.Placement
		}{{[]int{1}, one(shard0)}, {[]int{3}, one(shard0)}, {[]int{2, 2}, two(shard0, replicate)}} {
			meshtest.On(t, c.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				axes := []string{"a", "b"}[:len(c.mesh)]
				j, err := someBatch(shelfFeatures, shelfRows, 5, true).place(m, c.samples...)
				if err != nil {
					return err
				}
				plain := embedding.NewCollection(m, shelfOn(axes, 0).tables...)
				fused := embedding.NewCollection(m, shelfOn(axes, 0).tables...)
				w := &twin{plain: plain.Tables(), fused: fused.Tables()}
				w.forward = func(tables []*embedding.Table, head *dtensor.Tensor) *dtensor.Tensor {
					c := plain
					if tables[0] == fused.Tables()[0] {
						c = fused
					}
					y, z := c.Bags(j).Values(), c.Rows(j).Feature("a")
					return y.Mul(y).Sum(nil, false).Add(z.Mul(z).Sum(nil, false)).Mul(head).Sum(nil, false)
				}
				if err := w.check(ctx, m, maker); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				return nil
			})
		}
	}
}

// TestFusedErrors holds that an error of update, or of a forward pass, ends
// ValueAndGrad and leaves nothing behind.
func TestFusedErrors(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		table := embedding.NewTable(m, embedding.Config{Rows: 4, Dim: 2, Layout: embedding.RowWise("a")})
		ids, bad := meshtest.Place(m, []int64{0, 3}, []int{2}, replicate), meshtest.Place(m, []int64{0, 4}, []int{2}, replicate)
		sum := func(ids *dtensor.Tensor) func() *dtensor.Tensor {
			return func() *dtensor.Tensor { return table.Lookup(ids).Reduced().Sum(nil, false) }
		}
		broken := errors.New("broken")
		table.Fuse(func(*dtensor.Rows) error { return broken })
		if _, _, err := dtensor.ValueAndGrad(ctx, sum(ids), table.Param()); !errors.Is(err, broken) {
			return fmt.Errorf("got %v", err)
		}
		updates, total := 0, 0.0
		table.Fuse(func(rows *dtensor.Rows) error {
			updates++
			for _, v := range tensor.ToSlice[float32](rows.Values) {
				total += float64(v)
			}
			return nil
		})
		if _, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { sum(ids)(); return sum(bad)() }, table.Param()); err == nil ||
			updates != 0 {
			return fmt.Errorf("got %v and %d updates", err, updates)
		}
		if _, _, err := dtensor.ValueAndGrad(ctx, sum(ids), table.Param()); err != nil || updates != 1 || total != 2 {
			return fmt.Errorf("got %v, %d updates, %v", err, updates, total)
		}
		if sum(ids)(); updates != 1 { // outside there is no gradient
			return fmt.Errorf("%d updates", updates)
		}
		if _, _, err := dtensor.ValueAndGrad(ctx, sum(ids), table.Weight()); err == nil ||
			!strings.Contains(err.Error(), "is fused, and ValueAndGrad got its Weight, so nothing would train it; pass its Param") {
			return fmt.Errorf("Weight in place of Param: %v", err)
		}
		table.Fuse(nil)
		_, grads, err := dtensor.ValueAndGrad(ctx, sum(ids), table.Param())
		if _, ok := grads[0].Rows(); err != nil || !ok || updates != 1 {
			return fmt.Errorf("undone: %v, %v, %d updates", err, ok, updates)
		}
		partial := embedding.TableOf(dtensor.Zeros(m, tensor.Float32, []int{2, 2}, layout.Partial(layout.Sum)), embedding.Options{})
		if err := dtensor.Try(ctx, m, func() { partial.Fuse(func(*dtensor.Rows) error { return nil }) }); err == nil ||
			!strings.Contains(err.Error(), "is a sum") {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
}

// TestFusedAccumulate holds that each function of Accumulate updates a fused table
// whose rows its value depends on, as a ValueAndGrad of its own does.
func TestFusedAccumulate(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		table := func() *embedding.Table {
			t := embedding.NewTable(m, embedding.Config{Rows: 5, Dim: 2, Layout: embedding.RowWise("a")})
			step := makers["row-wise Adagrad"](t.Weight())
			t.Fuse(func(rows *dtensor.Rows) error { step(rows, 0.1); return nil })
			return t
		}
		one, all := table(), table()
		part := func(t *embedding.Table) func(i int) *dtensor.Tensor {
			return func(i int) *dtensor.Tensor {
				ids := meshtest.Place(m, []int64{0, int64(i), 4}, []int{3}, shard0)
				h := t.Lookup(ids)
				if i == 1 { // its rows have no part in the value
					h = dtensor.Full(m, tensor.Float32, 1, []int{1}, replicate)
				}
				return h.Square().Sum(nil, false)
			}
		}
		for i := range 3 {
			_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return part(one)(i) }, one.Param())
			if constant := i == 1; (err != nil) != constant { // alone it is refused
				return fmt.Errorf("part %d: %v", i, err)
			}
		}
		if _, _, err := dtensor.Accumulate(ctx, 3, part(all), all.Param()); err != nil {
			return err
		}
		if got, want := floats(all.Weight()), floats(one.Weight()); !slices.Equal(got, want) {
			return fmt.Errorf("the rows are %v, want %v", got, want)
		}
		return nil
	})
}

func TestFusedOutside(t *testing.T) {
	commtest.Run(t, 3, func(ctx context.Context, world *comm.Comm) error {
		m, err := dtensor.NewMeshOf(world, []int{2, 0}, dtensor.Axis{Name: "a", Size: 2})
		if err != nil {
			return err
		}
		table := embedding.NewTable(m, embedding.Config{Rows: 4, Dim: 2, Layout: embedding.RowWise("a")})
		updates := 0
		table.Fuse(func(*dtensor.Rows) error { updates++; return nil })
		ids := dtensor.Distribute(m, tensor.FromSlice(m.Device(), []int64{1, 2}, 2), replicate)
		_, _, err = dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return table.Lookup(ids).Reduced().Sum(nil, false) }, table.Param())
		if want := map[bool]int{true: 1}[m.Inside()]; err == nil && updates != want {
			return fmt.Errorf("%d updates, want %d", updates, want)
		}
		return err
	})
}

// A table that is fused in a Try outlives it, by itself and in a collection, though nothing but its Param was kept.
func TestFusedTableOutlivesItsScope(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		var table *embedding.Table
		var c *embedding.Collection
		if err := dtensor.Try(ctx, m, func() {
			config := embedding.Config{Name: "t", Rows: 5, Dim: 2, Layout: embedding.RowWise("a")}
			table = embedding.NewTable(m, config)
			table.Fuse(func(*dtensor.Rows) error { return nil })
			c = embedding.NewCollection(m, embedding.CollectionTable{Config: config, Features: []string{"f"}})
			c.Fuse(embedding.FusedOptimizer{New: newAdagrad, Rate: 0.1})
			dtensor.Keep(append(c.Params(), table.Param())...)
		}); err != nil {
			return err
		}
		j, err := embedding.NewJagged(m, []string{"f"}, 1, []int{1}, []int64{3}, nil)
		if err != nil {
			return err
		}
		_, _, err = dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			return c.Bags(j).Values().Add(table.Lookup(meshtest.Place(m, []int64{4}, []int{1}, replicate)).Reduced()).Sum(nil, false)
		}, append(c.Params(), table.Param())...)
		return err
	})
}
