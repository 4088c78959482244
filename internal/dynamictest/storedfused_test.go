package dynamictest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/checkpoint"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/optim"
)

// A collection that fuses optimizers has the same losses, weights and state, under the same names, whether a table of it
// has a Store or not; what is saved of the one loads into the other.
func TestFusedOptimizersOfATableWithAStore(t *testing.T) {
	for _, n := range []int{1, 2, 3} {
		saved := t.TempDir()
		commtest.Run(t, n, func(ctx context.Context, world *comm.Comm) error {
			mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "tp", Size: n})
			if err != nil {
				return err
			}
			memory, disk := newFused(mesh, "", 0), newFused(mesh, t.TempDir(), 4*200*4*4)
			for step := range 8 {
				a, err := memory.step(ctx, mesh, step)
				if err != nil {
					return err
				}
				if b, err := disk.step(ctx, mesh, step); err != nil || a != b {
					return fmt.Errorf("step %d: loss %v with a Store, %v without: %w", step, b, a, err)
				}
			}
			sum, err := checkpoint.SHA256(ctx, world, &memory.state)
			if err != nil {
				return err
			}
			if got, err := checkpoint.SHA256(ctx, world, &disk.state); err != nil || got != sum {
				return fmt.Errorf("state %s with a Store, %s without: %w", got, sum, err)
			}
			store, err := checkpoint.Open(ctx, world, saved, checkpoint.Options{})
			if err != nil {
				return err
			}
			if err := store.Save(ctx, 8, &memory.state); err != nil {
				return err
			}
			loaded := newFused(mesh, t.TempDir(), 4*200*4*4)
			if step, _, err := store.Resume(ctx, &loaded.state); err != nil || step != 8 {
				return fmt.Errorf("step %d: %w", step, err)
			}
			if got, err := checkpoint.SHA256(ctx, world, &loaded.state); err != nil || got != sum {
				return fmt.Errorf("loaded state %s, saved %s: %w", got, sum, err)
			}
			err = dtensor.Try(ctx, mesh, func() { disk.tables.Fuse(sgdOfAll) })
			if err == nil || !strings.Contains(err.Error(), `table "big" follows an optimizer already`) {
				return fmt.Errorf("a second Fuse: %v", err)
			}
			return nil
		})
	}
}

var sgdOfAll = embedding.FusedOptimizer{Rate: 0.1, New: optim.With(optim.NewSGD, optim.SGDConfig{})}

// A fused is a collection of a table that may lie on a disk and of one in memory, each with an optimizer of its own.
type fused struct {
	tables *embedding.Collection
	state  checkpoint.State
}

func newFused(mesh *dtensor.Mesh, folder string, cache int) *fused {
	table := func(name string, rows int, seed uint64) embedding.CollectionTable {
		return embedding.CollectionTable{Features: []string{name}, Mode: embedding.Sum, Config: embedding.Config{Name: name, Rows: rows, Dim: 4,
			Layout: embedding.RowWise("tp"), Key: dtensor.Key{Seed: seed}}}
	}
	big := table("big", 1000, 1)
	big.Store, big.Cache = folder, cache
	f := &fused{tables: embedding.NewCollection(mesh, big, table("small", 30, 2))}
	o := f.tables.Fuse(sgdOfAll,
		embedding.FusedOptimizer{Of: []string{"big"}, Rate: 0.3, New: optim.With(optim.NewSparseAdam, optim.SparseAdamConfig{})})
	f.state.AddTensors("tables.", f.tables.Weights())
	f.state.AddTensors("optimizer.", o.State())
	return f
}

// step trains on a batch of 12 samples of 1 to 3 ids, other rows in each step.
func (f *fused) step(ctx context.Context, mesh *dtensor.Mesh, step int) (float64, error) {
	rows := map[string]int{"big": 1000, "small": 30}
	var lists []embedding.Lists
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		l := embedding.Lists{Feature: name}
		for i := range 12 {
			l.Lengths = append(l.Lengths, 1+(i+step)%3)
			for k := range 1 + (i+step)%3 {
				l.IDs = append(l.IDs, int64((97*i+131*k+211*step)%rows[name]))
			}
		}
		lists = append(lists, l)
	}
	j, err := embedding.JaggedOf(mesh, 12, lists, layout.Replicate())
	if err != nil {
		return 0, err
	}
	v, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return f.tables.Bags(j).Values().Square().Mean(nil, false) },
		f.tables.Params()...)
	if err != nil {
		return 0, err
	}
	return v.Item(), nil
}
