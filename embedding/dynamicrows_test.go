package embedding_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// In Recompute neither keys nor fused tables can be trained: they would be looked up as if they were not, or changed twice. Tables
// that return their gradient, and lookups without training, may be in it.
func TestLookupsInRecompute(t *testing.T) {
	for _, mesh := range [][]int{{1}, {2}, {3}} {
		meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			ids := dtensor.Distribute(m, tensor.FromSlice(m.Device(), []int64{1, 2, 3, 4}, 4), m.Every(shard0)...)
			d := embedding.NewDynamic(m, embedding.DynamicConfig{Name: "keys", Axis: "a", Dim: 2, Budget: 256 * 2 * 4})
			c := embedding.Config{Name: "rows", Rows: 5, Dim: 2, Layout: embedding.RowWise("a")}
			plain, fused := embedding.NewTable(m, c), embedding.NewTable(m, c)
			fused.Fuse(func(rows *dtensor.Rows) error { return errors.New("it has changed") })
			collection := embedding.NewCollection(m, embedding.CollectionTable{Dynamic: d, Features: []string{"key"}, Mode: embedding.Sum})
			_, n := ids.Layout().Span(m.Coord(), 0)
			j, err := embedding.NewJagged(m, []string{"key"}, 4, slices.Repeat([]int{1}, n), make([]int64, n), nil, m.Every(shard0)...)
			if err != nil {
				return err
			}
			x := dtensor.Full(m, tensor.Float32, 1, []int{4, 2}, m.Every(shard0)...)
			for _, l := range []struct {
				lookup  func() *dtensor.Tensor
				param   *dtensor.Tensor
				refused bool
			}{
				{func() *dtensor.Tensor { return plain.Lookup(ids) }, plain.Param(), false},
				{func() *dtensor.Tensor { return fused.Lookup(ids) }, fused.Param(), true},
				{func() *dtensor.Tensor { return d.Lookup(ids) }, d.Param(), true},
				{func() *dtensor.Tensor { return d.Bag(ids.Reshape(4, 1), nil, nil, embedding.Sum) }, d.Param(), true},
				{func() *dtensor.Tensor { return collection.Bags(j).Values() }, d.Param(), true},
			} {
				for _, param := range []*dtensor.Tensor{l.param, x} {
					_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
						return dtensor.Recompute(func(x *dtensor.Tensor) *dtensor.Tensor { return l.lookup().Mul(x) }, x).Sum(nil, false)
					}, param)
					_, refused := errors.AsType[*embedding.Error](err)
					if want := l.refused && param != x; refused != want || err != nil && !refused {
						return fmt.Errorf("mesh %v: %v", mesh, err)
					}
				}
			}
			return nil
		})
	}
}

// A step that fails after lookups of keys has used none of them: keys, counts, candidates, rows and what the optimizer remembers of
// them are those of a run without such steps, where failed steps have taken the rows of others too.
func TestKeysOfFailedStepsAreNotUsed(t *testing.T) {
	for _, mesh := range [][]int{{1}, {2}, {3}, {4}, {2, 2}} {
		for admit := range 3 {
			var runs [2][]string
			for run := range runs {
				meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
					states, err := withFailures(ctx, m, admit, run == 1)
					if err != nil {
						return fmt.Errorf("mesh %v, AdmitAfter %d, run %d: %w", mesh, admit, run, err)
					}
					if m.Comm().Rank() == 0 {
						runs[run] = states
					}
					return nil
				})
			}
			if !slices.Equal(runs[0], runs[1]) {
				t.Fatalf("mesh %v, AdmitAfter %d: with failures\n%v, without\n%v", mesh, admit, runs[1], runs[0])
			}
		}
	}
}

// withFailures trains a table of keys, and if failing makes steps with other keys between that fail. It returns what the table is
// after each step.
func withFailures(ctx context.Context, m *dtensor.Mesh, admit int, failing bool) (states []string, err error) {
	d := embedding.NewDynamic(m, embedding.DynamicConfig{Name: "keys", Axis: "a", Dim: 3, Budget: 256 * 3 * 4 * 2, Seed: 3, AdmitAfter: admit})
	opt := newAdagrad([]*dtensor.Tensor{d.Weight()})
	d.Follow(opt.State())
	rows := embedding.NewTable(m, embedding.Config{Name: "rows", Rows: 5, Dim: 3})
	batch := func(seed, salt int) *dtensor.Tensor {
		rng := rand.New(rand.NewPCG(uint64(seed), uint64(salt)))
		keys := make([]int64, 700)
		for i := range keys {
			keys[i] = rng.Int64N(1000) * 1e15
		}
		return dtensor.Distribute(m, tensor.FromSlice(m.Device(), keys, len(keys)), m.Every(shard0)...)
	}
	loss := func(keys *dtensor.Tensor) *dtensor.Tensor {
		x := d.Lookup(keys)
		return x.Mul(x).Sum(nil, false)
	}
	bad := dtensor.Distribute(m, tensor.FromSlice(m.Device(), []int64{7}, 1), m.Every(replicate)...)
	fails := func(f func() error) error {
		if _, ok := errors.AsType[*embedding.IDError](f()); !ok {
			return errors.New("a lookup of row 7 of 5 has not failed")
		}
		return nil
	}
	for step := range 6 {
		if failing {
			if err := fails(func() error {
				_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
					y := loss(batch(step, 1)).Add(loss(batch(step, 2)))
					rows.Lookup(bad)
					return y
				}, d.Param())
				return err
			}); err != nil {
				return nil, err
			}
			if err := fails(func() error {
				_, _, err := dtensor.Accumulate(ctx, 3, func(i int) *dtensor.Tensor {
					y := loss(batch(step, 3+i))
					if i == 1 {
						rows.Lookup(bad)
					}
					return y
				}, d.Param())
				return err
			}); err != nil {
				return nil, err
			}
		}
		_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return loss(batch(step, 0)).Add(loss(batch(step+1, 0))) }, d.Param())
		if err == nil {
			err = opt.Step(grads, 0.1)
		}
		if err != nil {
			return nil, err
		}
		d.Advance()
		state := d.Stats().String()
		saved, free := d.Saved()
		for name, x := range saved {
			state += fmt.Sprint("\n", name, " ", whole(x))
		}
		free()
		states = append(states, state)
	}
	return states, nil
}
