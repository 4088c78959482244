//go:build linux

package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/job"
	kept "github.com/gorun-spmd/gorun/internal/snapshot"
	"github.com/gorun-spmd/gorun/tensor"
)

func snapshotMemory(t *testing.T) *os.File {
	t.Helper()
	f, err := kept.Create()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// keepIn saves the values under s as a snapshot of a step, twice: both slots serve.
func keepIn(t *testing.T, f *os.File, s setting, attempt, step int) {
	t.Helper()
	onSetting(t, s, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		ctx = job.WithSnapshots(ctx, &job.Snapshots{File: f, Attempt: attempt})
		state := stateOf(full(m, s, tensor.Float32, false))
		state.AddValue("step", &step)
		snaps, err := OpenSnapshots(ctx, world, state)
		if err != nil {
			return err
		}
		return errors.Join(snaps.Save(ctx, step-1), snaps.Save(ctx, step))
	})
}

// loadFrom loads what keepIn kept, under another setting.
func loadFrom(t *testing.T, f *os.File, s setting, want int) {
	t.Helper()
	onSetting(t, s, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		ctx = job.WithSnapshots(ctx, &job.Snapshots{File: f})
		all := full(m, s, tensor.Float32, true)
		state := stateOf(all)
		stored := -1
		state.AddValue("step", &stored)
		snaps, err := OpenSnapshots(ctx, world, state)
		if err != nil {
			return err
		}
		step, ok, err := snaps.Resume(ctx)
		if err != nil || !ok || step != want || stored != want {
			return fmt.Errorf("step %d, %v, value %d, %w; want %d", step, ok, stored, err, want)
		}
		return same(all)
	})
}

func TestSnapshotsFromAnySettingToAnyOther(t *testing.T) {
	f := snapshotMemory(t)
	for i, from := range settings() {
		keepIn(t, f, from, i, 10*i+5)
		for _, to := range settings() {
			t.Run(from.name+" to "+to.name, func(t *testing.T) { loadFrom(t, f, to, 10*i+5) })
		}
	}
}

func TestDamagedSnapshotIsRefused(t *testing.T) {
	f := snapshotMemory(t)
	keepIn(t, f, settings()[5], 0, 7)
	last, _, err := kept.Last(f)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{99, 98, 97}, last.Parts[2].At); err != nil {
		t.Fatal(err)
	}
	s := settings()[5]
	onSetting(t, s, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		ctx = job.WithSnapshots(ctx, &job.Snapshots{File: f})
		state := stateOf(full(m, s, tensor.Float32, true))
		var step int
		state.AddValue("step", &step)
		snaps, err := OpenSnapshots(ctx, world, state)
		if err != nil {
			return err
		}
		if _, _, err = snaps.Resume(ctx); err == nil || !strings.Contains(err.Error(), "CRC-32C") {
			return fmt.Errorf("damage gives %w", err)
		}
		return nil
	})
}

func TestSnapshotsThatDoNotFit(t *testing.T) {
	f := snapshotMemory(t)
	onRanks(t, 3, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		full := errors.New("the ranks use 10 bytes and may use 20")
		ctx = job.WithSnapshots(ctx, &job.Snapshots{File: f, Reserve: func(int) error {
			if world.Rank() == 1 {
				return full
			}
			return nil
		}})
		var state State
		state.AddTensor("x", dtensor.Zeros(m, tensor.Float32, []int{9}, settings()[2].placed([]int{9})...))
		if _, err := OpenSnapshots(ctx, world, &state); err == nil || !strings.Contains(err.Error(), "2 × 12 bytes of rank 1") {
			return fmt.Errorf("the error is %w", err)
		}
		return nil
	})
}

func TestNoSnapshotsWithoutElastic(t *testing.T) {
	onRanks(t, 2, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		if s, err := OpenSnapshots(ctx, world, new(State)); s != nil || err != nil {
			return fmt.Errorf("%v, %w", s, err)
		}
		return nil
	})
}
