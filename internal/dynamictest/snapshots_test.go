//go:build linux

package dynamictest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/checkpoint"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/internal/snapshot"
)

// A snapshot in memory has tables on a disk too, which any number of ranks loads, onto a disk and into memory.
func TestSnapshotsOfTablesOnADisk(t *testing.T) {
	p := newStoredProgram(0)
	for attempt, c := range []struct {
		ranks int
		l     embedding.Layout
	}{{1, embedding.RowWise("tp")}, {3, embedding.RowCyclic("tp")}, {4, embedding.ColumnWise("tp")}, {2, embedding.RowWise("tp")}} {
		f, err := snapshot.Create()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var want []float64
		commtest.Run(t, c.ranks, func(ctx context.Context, world *comm.Comm) error {
			mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "tp", Size: world.Size()})
			if err != nil {
				return err
			}
			var s *storedSide
			if err := dtensor.Try(ctx, mesh, func() { s = p.newStoredSide(mesh, t.TempDir(), c.l) }); err != nil {
				return err
			}
			snaps, err := checkpoint.OpenSnapshots(job.WithSnapshots(ctx, &job.Snapshots{File: f, Attempt: attempt}), world, &s.state)
			if err != nil {
				return err
			}
			for i, o := range p.ops[:12] {
				if _, err := s.run(ctx, mesh, &p, o); err != nil {
					return err
				}
				if err := snaps.Save(ctx, i+1); err != nil {
					return err
				}
			}
			store, err := checkpoint.Open(ctx, world, t.TempDir(), checkpoint.Options{})
			if err != nil {
				return err
			}
			if err := errors.Join(store.Save(ctx, 12, &s.state), store.Wait()); err != nil {
				return err
			}
			memory := p.newStoredSide(mesh, "", c.l)
			if _, _, err := store.Resume(ctx, &memory.state); err != nil {
				return err
			}
			return dtensor.Try(ctx, mesh, func() {
				if all := memory.saved(); world.Rank() == 0 {
					want = all
				}
			})
		})
		for _, ranks := range []int{1, 2, 3} {
			commtest.Run(t, ranks, func(ctx context.Context, world *comm.Comm) error {
				mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "tp", Size: world.Size()})
				if err != nil {
					return err
				}
				for _, folder := range []string{"", t.TempDir()} {
					var s *storedSide
					if err := dtensor.Try(ctx, mesh, func() { s = p.newStoredSide(mesh, folder, embedding.RowWise("tp")) }); err != nil {
						return err
					}
					snaps, err := checkpoint.OpenSnapshots(job.WithSnapshots(ctx, &job.Snapshots{File: f, Attempt: attempt + 1}), world, &s.state)
					if err != nil {
						return err
					}
					if step, ok, err := snaps.Resume(ctx); err != nil || !ok || step != 12 {
						return fmt.Errorf("%d ranks load the snapshot of %d: step %d, %v, %w", ranks, c.ranks, step, ok, err)
					}
					store, err := checkpoint.Open(ctx, world, t.TempDir(), checkpoint.Options{})
					if err != nil {
						return err
					}
					if err := errors.Join(store.Save(ctx, 12, &s.state), store.Wait()); err != nil {
						return err
					}
					memory := p.newStoredSide(mesh, "", embedding.RowWise("tp"))
					if _, _, err := store.Resume(ctx, &memory.state); err != nil {
						return err
					}
					if err := dtensor.Try(ctx, mesh, func() {
						if !slices.Equal(memory.saved(), want) {
							panic(fmt.Sprintf("%d ranks load another state than %d ranks kept", ranks, c.ranks))
						}
					}); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
}
