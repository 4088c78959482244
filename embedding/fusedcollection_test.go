package embedding_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// optimizerOf makes an optimizer of one table by a stepper of makers. Its state is the table
// itself, under the name "w".
func optimizerOf(maker string) func(params []*dtensor.Tensor) embedding.Optimizer {
	return func(params []*dtensor.Tensor) embedding.Optimizer {
		return &onlyTable{w: params[0], step: makers[maker](params[0]), params: len(params)}
	}
}

type onlyTable struct {
	w      *dtensor.Tensor
	step   stepper
	params int
	err    error
}

func (o *onlyTable) Step(grads []dtensor.Grad, lr float64) error {
	rows, ok := grads[0].Rows()
	if len(grads) != 1 || o.params != 1 || !ok {
		return fmt.Errorf("%d gradients of %d parameters, rows %v", len(grads), o.params, ok)
	}
	if o.err == nil {
		o.step(rows, lr)
	}
	return o.err
}

func (o *onlyTable) State() iter.Seq2[string, *dtensor.Tensor] {
	return func(yield func(string, *dtensor.Tensor) bool) { yield("w", o.w) }
}

// Tables of one collection with optimizers and rates of their own, chosen by table and by
// feature, train as tables each of which is alone in a collection and stepped after the
// backward pass: weighted features and features with factors by position among them.
func TestFusedOptimizers(t *testing.T) {
	by := map[string]struct {
		maker string
		rate  float64
	}{"wide": {"SparseAdam", 0.3}, "one": {"row-wise Adagrad", 0.1}, "columns": {"SGD", 0.05}, "copy": {"row-wise Adagrad", 0.1},
		"rest": {}, "unused": {"row-wise Adagrad", 0.1}, "empty": {"row-wise Adagrad", 0.1}}
	for _, c := range []struct {
		mesh    []int
		samples []layout.Placement
	}{{[]int{1}, one(shard0)}, {[]int{2}, one(shard0)}, {[]int{3}, one(replicate)}, {[]int{4}, one(shard0)},
		{[]int{2, 2}, two(shard0, replicate)}} {
		meshtest.On(t, c.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			axes := []string{"a", "b"}[:len(c.mesh)]
			configs := shelfOn(axes, 0).tables
			batch, err := someBatch(shelfFeatures, shelfRows, 5, false).place(m, c.samples...)
			if err != nil {
				return err
			}
			positions := func() (*embedding.PositionWeights, *embedding.Jagged, error) {
				p, err := embedding.NewPositionWeights(m, []string{"c", "d"}, []int{3, 3})
				if err != nil {
					return nil, nil, err
				}
				j, err := p.Apply(batch)
				return p, j, err
			}
			together := embedding.NewCollection(m, configs...)
			fused := together.Fuse(
				embedding.FusedOptimizer{Of: []string{"a", "wide"}, New: optimizerOf("SparseAdam"), Rate: 0.3},
				embedding.FusedOptimizer{New: optimizerOf("row-wise Adagrad"), Rate: 0.1},
				embedding.FusedOptimizer{Of: []string{"columns"}, New: optimizerOf("SGD"), Rate: 7},
				embedding.FusedOptimizer{Of: []string{"f"}, New: optimizerOf("SGD")})
			fused.SetRate(0.05, "c")
			fused.SetRate(0, "f")
			p, j, err := positions()
			if err != nil {
				return err
			}
			q, k, err := positions()
			if err != nil {
				return err
			}
			var apart []*embedding.Collection
			var steps []stepper
			var weights []*dtensor.Tensor
			for _, config := range configs {
				one := embedding.NewCollection(m, config)
				apart, weights = append(apart, one), append(weights, one.Params()...)
				steps = append(steps, nil)
				if its := by[config.Name]; its.maker != "" {
					steps[len(steps)-1] = makers[its.maker](one.Tables()[0].Weight())
				}
			}
			for step := range 3 {
				factor := 1 / float64(step+1)
				if step > 0 { // all rates at once, then one of them
					fused.SetRate(0.1 * factor)
					fused.SetRate(0.3*factor, "wide")
					fused.SetRate(0.05*factor, "columns")
					fused.SetRate(0, "rest")
				}
				params := append(together.Params(), p.Params()...)
				value, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
					y := together.Bags(j).Values()
					return y.Mul(y).Sum(nil, false)
				}, params...)
				if err != nil {
					return err
				}
				want, plain, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
					var all []*dtensor.Tensor
					for _, one := range apart {
						all = append(all, one.Bags(k).Values())
					}
					y := dtensor.Cat(1, all...)
					return y.Mul(y).Sum(nil, false)
				}, append(slices.Clone(weights), q.Params()...)...)
				if err != nil {
					return err
				}
				if value.Item() != want.Item() {
					return fmt.Errorf("step %d: the loss is %v, of separate tables %v", step, value.Item(), want.Item())
				}
				for f := range p.Params() {
					got, want := floats(grads[len(configs)+f].Dense()), floats(plain[len(configs)+f].Dense())
					if !slices.Equal(got, want) {
						return fmt.Errorf("step %d: factors %d have the gradient %v, of separate tables %v", step, f, got, want)
					}
				}
				for i, config := range configs {
					rows, ok := plain[i].Rows()
					if ok && steps[i] != nil {
						steps[i](rows, by[config.Name].rate*factor)
					}
					got, want := floats(together.Tables()[i].Weight()), floats(weights[i])
					if !slices.Equal(got, want) {
						return fmt.Errorf("step %d: table %q is %v, a separate one %v", step, config.Name, got, want)
					}
				}
			}
			var names []string
			for name, s := range fused.State() {
				names = append(names, name)
				if s != together.Tables()[len(names)-1].Weight() {
					return fmt.Errorf("the state %q is %v", name, s)
				}
			}
			if want := []string{"wide.w", "one.w", "columns.w", "copy.w", "rest.w", "unused.w", "empty.w"}; !slices.Equal(names, want) {
				return fmt.Errorf("the state has %q, want %q", names, want)
			}
			i := 0
			for name, w := range together.Weights() {
				if want := configs[i].Name + ".weight"; name != want || w != together.Tables()[i].Weight() {
					return fmt.Errorf("the weights of table %d are %q, want %q", i, name, want)
				}
				i++
			}
			if i != len(configs) {
				return fmt.Errorf("there are weights of %d tables of %d", i, len(configs))
			}
			return nil
		})
	}
}

// A table with a MaxGradient is trained as by a step after the backward pass with each element of the gradient between the bounds.
func TestFusedMaxGradient(t *testing.T) {
	const limit, rate = 1.5, 0.1
	for _, ranks := range []int{1, 3} {
		meshtest.On(t, []int{ranks}, func(ctx context.Context, m *dtensor.Mesh) error {
			configs := shelfOn([]string{"a"}, 0).tables
			j, err := someBatch(shelfFeatures, shelfRows, 5, false).place(m, shard0)
			if err != nil {
				return err
			}
			fused, plain := embedding.NewCollection(m, configs...), embedding.NewCollection(m, configs...)
			fused.Fuse(embedding.FusedOptimizer{New: optimizerOf("SGD"), Rate: rate, MaxGradient: limit})
			clipped := 0
			for range 2 {
				gradients := func(c *embedding.Collection) (grads []dtensor.Grad, err error) {
					_, grads, err = dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
						y := c.Bags(j).Values()
						return y.Mul(y).Sum(nil, false)
					}, c.Params()...)
					return grads, err
				}
				if _, err := gradients(fused); err != nil {
					return err
				}
				grads, err := gradients(plain)
				if err != nil {
					return err
				}
				for i, table := range plain.Tables() {
					if rows, ok := grads[i].Rows(); ok {
						values := tensor.Data[float32](rows.Values)
						for k, v := range values {
							if values[k] = max(-limit, min(v, limit)); values[k] != v {
								clipped++
							}
						}
						makers["SGD"](table.Weight())(rows, rate)
					}
					if got, want := floats(fused.Tables()[i].Weight()), floats(table.Weight()); !slices.Equal(got, want) {
						return fmt.Errorf("table %q is %v, after a step with clipped gradients %v", configs[i].Name, got, want)
					}
				}
			}
			if ranks == 1 && clipped == 0 {
				return errors.New("no gradient is beyond the bounds")
			}
			return nil
		})
	}
}

// Tables that no optimizer is for return their gradients, and Fuse without any undoes it.
func TestFusedOptimizersOfSomeTables(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		c := embedding.NewCollection(m, shelfOn([]string{"a"}, 0).tables...)
		j, err := someBatch(shelfFeatures, shelfRows, 5, false).place(m, shard0)
		if err != nil {
			return err
		}
		for _, fused := range []bool{true, false} {
			if fused {
				c.Fuse(embedding.FusedOptimizer{Of: []string{"b", "wide"}, New: optimizerOf("SGD"), Rate: 0.1})
			} else {
				c.Fuse()
			}
			_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return c.Bags(j).Values().Sum(nil, false) }, c.Params()...)
			if err != nil {
				return err
			}
			for i, table := range c.Tables() {
				_, rows := grads[i].Rows()
				if its := fused && i < 2; rows == its || its != (table.Param() != table.Weight()) {
					return fmt.Errorf("fused %v: table %d returns rows: %v", fused, i, rows)
				}
			}
		}
		return nil
	})
}

// What cannot be is refused by name, on every rank, and changes nothing.
func TestFusedOptimizersRefuse(t *testing.T) {
	sgd := optimizerOf("SGD")
	type o = embedding.FusedOptimizer
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		tables := append(shelfOn([]string{"a"}, 0).tables, embedding.CollectionTable{Config: embedding.Config{Name: "a", Rows: 2, Dim: 2}})
		c := embedding.NewCollection(m, tables...)
		broken := errors.New("broken")
		fused := c.Fuse(o{Of: []string{"wide"}, Rate: 0.1, New: func(params []*dtensor.Tensor) embedding.Optimizer {
			return &onlyTable{w: params[0], params: 1, err: broken}
		}})
		j, err := someBatch(shelfFeatures, shelfRows, 5, false).place(m, shard0)
		if err != nil {
			return err
		}
		for _, bad := range []struct {
			f    func()
			says string
		}{
			{func() { c.Fuse(o{Of: []string{"no"}, New: sgd}) }, `"no" is neither a table nor a feature; the tables are "wide", "one", "columns", `},
			{func() { c.Fuse(o{Of: []string{"a"}, New: sgd}) }, `"a" is a table, and a feature of table "wide"`},
			{func() { c.Fuse(o{Of: []string{"d"}, New: sgd}, o{Of: []string{"b", "wide"}, New: sgd}) },
				`feature "d" and table "wide" have two optimizers, but one table, "wide"`},
			{func() { c.Fuse(o{New: sgd}, o{Of: []string{"b"}, New: sgd}, o{New: sgd}) }, "two optimizers are for all other tables"},
			{func() { c.Fuse(o{Of: []string{"b"}, Rate: 1}) }, `the optimizer of "b" has no New`},
			{func() { c.Fuse(o{Of: []string{"b"}, New: sgd, Rate: math.NaN()}) }, `the rate of "b" is NaN`},
			{func() { c.Fuse(o{New: sgd, Rate: math.Inf(1)}) }, "the rate of all other tables is +Inf"},
			{func() { c.Fuse(o{Of: []string{"b"}, New: sgd, MaxGradient: -1}) }, `the MaxGradient of "b" is -1; give a positive one`},
			{func() { c.Fuse(o{New: sgd, MaxGradient: math.NaN()}) }, "the MaxGradient of all other tables is NaN"},
			{func() {
				c.Fuse(o{Of: []string{"b"}, New: func([]*dtensor.Tensor) embedding.Optimizer { return nil }})
			}, `New returned no optimizer for table "one"`},
			{func() { fused.SetRate(math.NaN()) }, "SetRate: the rate of all tables is NaN"},
			{func() { fused.SetRate(1, "wide", "one") }, `table "one" has no fused optimizer`},
			{func() { fused.SetRate(1, "no") }, `"no" is neither a table nor a feature`},
		} {
			var wrong *embedding.Error
			if err := dtensor.Try(ctx, m, bad.f); !errors.As(err, &wrong) || !strings.Contains(err.Error(), bad.says) {
				return fmt.Errorf("got %v, want %q", err, bad.says)
			}
		}
		before := tensor.ToSlice[float32](c.Tables()[0].Weight().Local())
		_, _, err = dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return c.Bags(j).Values().Sum(nil, false) }, c.Params()...)
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), `table "wide"`) {
			return fmt.Errorf("an optimizer that fails: got %v", err)
		}
		if !slices.Equal(before, tensor.ToSlice[float32](c.Tables()[0].Weight().Local())) {
			return errors.New("the table has changed")
		}
		return nil
	})
}

// A table whose fused optimizer was given no rate is refused in the first backward pass on every rank. SetRate may give 0.
func TestFusedOptimizerWithoutARate(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		c := embedding.NewCollection(m, shelfOn([]string{"a"}, 0).tables...)
		fused := c.Fuse(embedding.FusedOptimizer{Of: []string{"wide"}, New: optimizerOf("SGD")})
		j, err := someBatch(shelfFeatures, shelfRows, 5, false).place(m, shard0)
		if err != nil {
			return err
		}
		step := func() error {
			_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return c.Bags(j).Values().Sum(nil, false) }, c.Params()...)
			return err
		}
		before := tensor.ToSlice[float32](c.Tables()[0].Weight().Local())
		if err, want := step(), `table "wide" has a fused optimizer and no rate; give the FusedOptimizer a Rate, or call SetRate`; err == nil ||
			!strings.Contains(err.Error(), want) {
			return fmt.Errorf("got %v, want %q", err, want)
		}
		for _, rate := range []float64{0, 1} {
			fused.SetRate(rate)
			if err := step(); err != nil {
				return err
			}
			if same := slices.Equal(before, tensor.ToSlice[float32](c.Tables()[0].Weight().Local())); same != (rate == 0) {
				return fmt.Errorf("with a rate of %v the table is the same: %v", rate, same)
			}
		}
		return nil
	})
}
