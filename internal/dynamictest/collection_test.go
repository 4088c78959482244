package dynamictest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/checkpoint"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/keytable"
	"github.com/gorun-spmd/gorun/optim"
)

// A mixed is a collection of a table in memory, one on a disk whose columns are divided, and two of keys.
type mixed struct {
	tables *embedding.Collection
	keys   []*embedding.Dynamic
	state  checkpoint.State
}

func newMixed(mesh *dtensor.Mesh, folder string) *mixed {
	m := &mixed{}
	for i, name := range []string{"visitors", "sessions"} {
		m.keys = append(m.keys, embedding.NewDynamic(mesh, embedding.DynamicConfig{Name: name, Axis: []string{"tp", "dp"}[i], Dim: 3,
			Budget: keytable.Slices * 3 * 4, Seed: uint64(i), AdmitAfter: 1 + i, ExpireAfter: 3}))
	}
	m.tables = embedding.NewCollection(mesh,
		embedding.CollectionTable{Features: []string{"visitor", "friend"}, Mode: embedding.Sum, Dynamic: m.keys[0]},
		embedding.CollectionTable{Features: []string{"place"}, Config: embedding.Config{Name: "places", Rows: 50, Dim: 4,
			Layout: embedding.RowWise("tp"), Key: dtensor.Key{Seed: 3}}},
		embedding.CollectionTable{Features: []string{"session"}, Mode: embedding.Max, Dynamic: m.keys[1]},
		embedding.CollectionTable{Features: []string{"item"}, Config: embedding.Config{Name: "items", Rows: 900, Dim: 4,
			Layout: embedding.Grid("dp", "tp"), Key: dtensor.Key{Seed: 4}, Store: folder, Cache: 4 * 64 * 4 * 4}})
	fused := m.tables.Fuse(
		embedding.FusedOptimizer{Of: []string{"sessions", "item"}, Rate: 0.1, New: optim.With(optim.NewSparseAdam, optim.SparseAdamConfig{})},
		embedding.FusedOptimizer{Rate: 0.3, New: optim.With(optim.NewRowAdagrad, optim.RowAdagradConfig{})})
	m.state.AddTensors("tables.", m.tables.Weights())
	m.state.AddTensors("optimizer.", fused.State())
	for i, name := range []string{"visitors.", "sessions."} {
		m.state.AddGrowing(name, m.keys[i])
	}
	return m
}

// batch returns 12 samples, divided over all ranks.
func (m *mixed) batch(mesh *dtensor.Mesh, step int) (*embedding.Jagged, error) {
	first, end := 0, 0
	if mesh.Inside() {
		first = 12 / mesh.Size() * mesh.Comm().Rank()
		end = first + 12/mesh.Size()
	}
	var lists []embedding.Lists
	for f, name := range []string{"visitor", "friend", "place", "session", "item"} {
		l := embedding.Lists{Feature: name}
		for s := first; s < end; s++ {
			l.Lengths = append(l.Lengths, 1+(s+step+f)%3)
			for k := range 1 + (s+step+f)%3 {
				id := int64(97*s*s + 131*k + 211*step + 17*f)
				switch name {
				case "place":
					id %= 50
				case "item":
					id %= 900
				default:
					id = id % 150 * 1e15
				}
				l.IDs = append(l.IDs, id)
			}
		}
		lists = append(lists, l)
	}
	return embedding.JaggedOf(mesh, 12, lists, layout.Shard(0), layout.Shard(0))
}

// run makes the steps from first on.
func (m *mixed) run(ctx context.Context, mesh *dtensor.Mesh, first, end int) error {
	for step := first; step < end; step++ {
		j, err := m.batch(mesh, step)
		if err != nil {
			return err
		}
		next, err := m.batch(mesh, step+1)
		if err != nil {
			return err
		}
		if err := dtensor.Try(ctx, mesh, func() { m.tables.Prefetch(next) }); err != nil {
			return err
		}
		if _, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return m.tables.Bags(j).Values().Sin().Sum(nil, false) },
			m.tables.Params()...); err != nil {
			return err
		}
		for _, d := range m.keys {
			d.Advance()
		}
	}
	return nil
}

// With same bits a collection with tables of keys, on disks and in memory has on every mesh the state of one rank, without a stop
// and when it goes on from a checkpoint of other ranks, of which some may be outside the mesh.
func TestCollectionWithKeysGoesOn(t *testing.T) {
	var want string
	saved := t.TempDir()
	for i, c := range []struct {
		shape [2]int
		ranks []int // of a world of one more than the largest
	}{{[2]int{1, 1}, []int{0}}, {[2]int{3, 1}, []int{2, 0, 3}}, // which saves, and those that follow go on
		{[2]int{2, 2}, []int{0, 1, 2, 3}}, {[2]int{1, 4}, []int{0, 1, 2, 3}}, {[2]int{1, 2}, []int{0, 2}}, {[2]int{1, 1}, []int{0}}} {
		const steps, stop = 12, 5
		commtest.Run(t, slices.Max(c.ranks)+1, func(ctx context.Context, world *comm.Comm) error {
			mesh, err := dtensor.NewMeshOf(world, c.ranks, dtensor.Axis{Name: "dp", Size: c.shape[0]}, dtensor.Axis{Name: "tp", Size: c.shape[1]})
			if err != nil {
				return err
			}
			mesh.SetSameBits(true)
			m := newMixed(mesh, t.TempDir())
			store, err := checkpoint.Open(ctx, world, saved, checkpoint.Options{})
			if err != nil {
				return err
			}
			first, _, err := store.Resume(ctx, &m.state)
			if err != nil {
				return err
			}
			if err := m.run(ctx, mesh, first, stop); err != nil {
				return err
			}
			if i == 1 {
				if err := store.Save(ctx, stop, &m.state); err != nil {
					return err
				}
			}
			if err := m.run(ctx, mesh, stop, steps); err != nil {
				return err
			}
			if err := store.Wait(); err != nil {
				return err
			}
			sum, err := checkpoint.SHA256(ctx, world, &m.state)
			if err != nil {
				return err
			}
			a, b := m.keys[0].Stats(), m.keys[1].Stats()
			if world.Rank() != 0 {
				return nil
			}
			if sum += fmt.Sprint(a.Keys, b.Keys, b.Candidates); want == "" {
				want = sum
			}
			if sum != want || a.Keys == 0 || b.Candidates == 0 {
				return fmt.Errorf("%v from step %d: %s, on one rank %s", c, first, sum, want)
			}
			return nil
		})
	}
}
