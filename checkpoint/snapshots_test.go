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

// Of a damaged snapshot nothing is loaded: the one before counts, and if that is damaged too, none does. The
// next one that is saved counts again.
func TestDamagedSnapshots(t *testing.T) {
	f := snapshotMemory(t)
	s := settings()[5]
	open := func(save bool, want int, damage ...string) {
		t.Helper()
		onSetting(t, s, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
			ctx = job.WithSnapshots(ctx, &job.Snapshots{File: f, Attempt: 1})
			all := full(m, s, tensor.Float32, !save)
			state := stateOf(all)
			snaps, err := OpenSnapshots(ctx, world, state)
			if err != nil {
				return err
			}
			if step, ok := snaps.Last(); ok != (want > 0) || ok && step != want {
				return fmt.Errorf("the last one is of step %d, %v; want %d", step, ok, want)
			}
			step, ok, err := snaps.Resume(ctx)
			if err != nil || ok != (want > 0) || ok && step != want {
				return fmt.Errorf("step %d, %v, %w; want %d", step, ok, err, want)
			}
			if (snaps.Damage() != nil) != (len(damage) > 0) {
				return fmt.Errorf("damage %w, want %q", snaps.Damage(), damage)
			}
			for _, text := range damage {
				if !strings.Contains(snaps.Damage().Error(), text) {
					return fmt.Errorf("damage %w, want %q", snaps.Damage(), text)
				}
			}
			if ok {
				err = same(all)
			}
			if save && err == nil {
				err = snaps.Save(ctx, 9)
			}
			return err
		})
	}
	onSetting(t, s, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		ctx = job.WithSnapshots(ctx, &job.Snapshots{File: f})
		snaps, err := OpenSnapshots(ctx, world, stateOf(full(m, s, tensor.Float32, false)))
		if err != nil {
			return err
		}
		return errors.Join(snaps.Save(ctx, 6), snaps.Save(ctx, 7))
	})
	all, err := kept.Complete(f)
	if err != nil || len(all) != 2 {
		t.Fatalf("%d snapshots, %v", len(all), err)
	}
	harm := func(at int64) {
		if _, err := f.WriteAt([]byte{99, 98, 97}, at); err != nil {
			t.Fatal(err)
		}
	}
	open(false, 7)
	harm(all[0].Parts[2].At)
	open(false, 6, "the snapshot of step 7", "CRC-32C")
	harm(all[1].Parts[1].At + all[1].Parts[1].Bytes)
	open(true, 0, "the snapshot of step 7", "the snapshot of step 6", "description")
	open(false, 9)
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
		if _, err := OpenSnapshots(ctx, world, &state); err == nil ||
			!strings.Contains(err.Error(), "2 × 12 bytes of rank 1") || !strings.Contains(err.Error(), "--max-restarts") {
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
