package dynamictest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/checkpoint"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
)

// A place is where a table of fixed rows lies.
type place struct {
	name   string
	mesh   []int
	layout embedding.Layout
}

var places = []place{
	{"one rank", []int{1, 1}, embedding.RowCyclic("b")},
	{"in turn over 2", []int{1, 2}, embedding.RowCyclic("b")},
	{"in blocks over 3", []int{1, 3}, embedding.RowWise("b")},
	{"in turn over 3", []int{1, 3}, embedding.RowCyclic("b")},
	{"in turn over 2 of 2 x 2", []int{2, 2}, embedding.RowCyclic("a")},
	{"in turn over 13, which are more than rows", []int{1, 13}, embedding.RowCyclic("b")},
	{"in columns", []int{2, 1}, embedding.ColumnWise("a")},
	{"replicated", []int{1, 2}, embedding.Replicated()},
	{"in columns over 5, which are more than columns", []int{5, 1}, embedding.ColumnWise("a")},
}

// Wherever a table lies, in turn too, it begins, trains and goes on from a checkpoint of any
// other place with the same bits, of the rows and of what the optimizer remembers of them.
func TestTablesInTurnTrainAndLoadAsOthers(t *testing.T) {
	const rows, dim, steps = 11, 3, 4
	for _, dt := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
		var want map[string][]float64 // by tensor
		dir := t.TempDir()
		// run trains from step first on, with a checkpoint in the middle, and compares the end.
		run := func(p place, first int, from string) {
			commtest.Run(t, p.mesh[0]*p.mesh[1], func(ctx context.Context, world *comm.Comm) error {
				m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "a", Size: p.mesh[0]}, dtensor.Axis{Name: "b", Size: p.mesh[1]})
				if err != nil {
					return err
				}
				return errors.Join(dtensor.Try(ctx, m, func() {
					m.SetSameBits(true)
					padding := 4
					table := embedding.NewTable(m, embedding.Config{Rows: rows, Dim: dim, Layout: p.layout, DType: dt, PaddingIdx: &padding})
					dtensor.Keep(table.Weight())
					opt := optim.NewAdagrad([]*dtensor.Tensor{table.Weight()}, optim.AdagradConfig{})
					table.Fuse(func(r *dtensor.Rows) error { return opt.Step([]dtensor.Grad{dtensor.Sparse(r)}, 0.1) })
					var state checkpoint.State
					state.AddTensor("table", table.Weight())
					state.AddTensors("optimizer.", opt.State())
					if from != "" {
						tensor.Fill(table.Weight().Local(), 7)
						dtensor.Check(checkpoint.Load(ctx, world, from, &state, checkpoint.LoadOptions{}))
					}
					for step := first; step < steps; step++ {
						ids := make([]int64, 12)
						for i := range ids {
							ids[i] = int64(i*i*(step+1)) % rows
						}
						x := dtensor.Distribute(m, tensor.FromSlice(m.Device(), ids, 4, 3), layout.Shard(0), layout.Replicate())
						_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
							h := table.Lookup(x)
							again := table.LookupAs(x, m.Every(layout.Replicate())...)
							return h.Mul(h).Sum(nil, false).Add(again.Sin().Sum(nil, false))
						}, table.Param())
						dtensor.Check(err)
						if step == steps/2-1 {
							store, err := checkpoint.Open(ctx, world, filepath.Join(dir, p.name), checkpoint.Options{})
							dtensor.Check(err)
							dtensor.Check(store.Save(ctx, step+1, &state))
							dtensor.Check(store.Wait())
						}
					}
					got := map[string][]float64{"table": all(table.Weight())}
					for name, t := range opt.State() {
						got[name] = all(t)
					}
					sum, err := checkpoint.SHA256(ctx, world, &state)
					dtensor.Check(err)
					if world.Rank() != 0 {
						return
					}
					got[sum] = nil // it is of the rows in their order
					if want == nil {
						want = got
					}
					for name := range want {
						its, ok := got[name]
						same := slices.EqualFunc(its, want[name], func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) })
						if !ok || !same {
							dtensor.Check(fmt.Errorf("%s from %q: %s is %v, want %v", p.name, from, name, its, want[name]))
						}
					}
				}))
			})
		}
		for _, p := range places {
			run(p, 0, "")
		}
		for i, p := range places {
			from := places[(i+3)%len(places)]
			run(p, steps/2, filepath.Join(dir, from.name, fmt.Sprintf("step-%06d", steps/2)))
		}
	}
}

// all returns the elements of a tensor.
func all(t *dtensor.Tensor) []float64 {
	return tensor.ToSlice[float64](tensor.Cast(t.Full(), tensor.Float64))
}

// Every optimizer makes the same steps of a table, wherever it lies.
func TestOptimizersOfTablesInTurn(t *testing.T) {
	const rows, dim, steps = 11, 3, 3
	for name, make := range map[string]func(params []*dtensor.Tensor) optim.Optimizer{
		"AdamW":      optim.With(optim.NewAdamW, optim.AdamWConfig{WeightDecay: 0.1}),
		"Adafactor":  optim.With(optim.NewAdafactor, optim.AdafactorConfig{}),
		"LAMB":       optim.With(optim.NewLAMB, optim.LAMBConfig{}),
		"Muon":       optim.With(optim.NewMuon, optim.MuonConfig{}),
		"RowAdagrad": optim.With(optim.NewRowAdagrad, optim.RowAdagradConfig{}),
		"Adagrad":    optim.With(optim.NewAdagrad, optim.AdagradConfig{}),
		"SparseAdam": optim.With(optim.NewSparseAdam, optim.SparseAdamConfig{}),
		"SGD":        optim.With(optim.NewSGD, optim.SGDConfig{Momentum: 0.9}),
		"Lion":       optim.With(optim.NewLion, optim.LionConfig{}),
	} {
		var want []float64
		for _, p := range places {
			commtest.Run(t, p.mesh[0]*p.mesh[1], func(ctx context.Context, world *comm.Comm) error {
				m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "a", Size: p.mesh[0]}, dtensor.Axis{Name: "b", Size: p.mesh[1]})
				if err != nil {
					return err
				}
				c := embedding.NewCollection(m, embedding.CollectionTable{Features: []string{"f"}, Mode: embedding.Sum,
					Config: embedding.Config{Rows: rows, Dim: dim, Layout: p.layout}})
				table, params := c.Tables()[0], c.Params()
				opt := make(params)
				spread := []layout.Placement{layout.Shard(0), layout.Replicate()}
				samples := dtensor.Arange(m, tensor.Int64, 0, 5, spread...) // and the id of each
				n := samples.LocalShape()[0]
				j, err := embedding.NewJagged(m, []string{"f"}, 5, slices.Repeat([]int{1}, n), tensor.ToSlice[int64](samples.Local()), nil, spread...)
				if err != nil {
					return err
				}
				for step := range steps {
					_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
						ids := tensor.FromSlice(m.Device(), []int64{1, 5, int64(step), 10, 5, 8}, 6)
						h, bags := table.Lookup(dtensor.Distribute(m, ids, spread...)), c.Bags(j).Values()
						return h.Mul(h).Sum(nil, false).Add(bags.Mul(bags).Mean(nil, false))
					}, params...)
					if err != nil {
						return err
					}
					if err := opt.Step(grads, 0.1); err != nil {
						return err
					}
				}
				return dtensor.Try(ctx, m, func() {
					got := all(table.Weight())
					if world.Rank() != 0 {
						return
					}
					if want == nil {
						want = got
					}
					for i := range want {
						if math.Abs(got[i]-want[i]) > 1e-5 {
							dtensor.Check(fmt.Errorf("%s %s: number %d is %v, on one rank %v", name, p.name, i, got[i], want[i]))
						}
					}
				})
			})
		}
	}
}
