package checkpoint

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/tensor"
)

// TestSaveWithoutWait leaves it to the end of the program, once a store, to wait for a save and to tell its error.
func TestSaveWithoutWait(t *testing.T) {
	fs := newMemFS()
	onRanks(t, 2, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		var ends []func() error
		ctx = job.WithEnd(ctx, func(end func() error) { ends = append(ends, end) })
		store, err := Open(ctx, world, "root", Options{fs: fs})
		if err != nil {
			return err
		}
		var state State
		state.AddTensor(fmt.Sprint("w", world.Rank()), dtensor.Full(m, tensor.Float32, 1, []int{6, 5}, layout.Shard(0)))
		for step := range 2 {
			_ = store.Save(ctx, step, &state)
		}
		if len(ends) != 1 {
			return fmt.Errorf("the end of the program waits %d times", len(ends))
		}
		if err := ends[0](); err == nil || !strings.Contains(err.Error(), "other names") {
			return fmt.Errorf("the end of the program got %v", err)
		}
		return nil
	})
}

// TestSaveOfAJobThatStops saves and loads with a context that has ended because the job
// is to stop, as runtime.Main's does; the launcher is told of the save.
func TestSaveOfAJobThatStops(t *testing.T) {
	fs := newMemFS()
	var told atomic.Int64
	onRanks(t, 3, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		ctx, cancel := context.WithCancelCause(job.WithSaved(ctx, func() { told.Add(1) }))
		cancel(comm.ErrStopping)
		store, err := Open(ctx, world, "root", Options{fs: fs})
		if err != nil {
			return err
		}
		var state State
		w := dtensor.Full(m, tensor.Float32, 1, []int{6, 5}, layout.Shard(0))
		state.AddTensor("w", w)
		if started, err := store.TrySave(ctx, 3, &state); err != nil || !started {
			return fmt.Errorf("TrySave: %v, %w", started, err)
		}
		if err := store.Wait(); err != nil {
			return err
		}
		tensor.Fill(w.Local(), 9)
		if step, ok, err := store.Resume(ctx, &state); err != nil || !ok || step != 3 {
			return fmt.Errorf("Resume: %d, %v, %w", step, ok, err)
		}
		_, _, err = dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return w.Sum(nil, false) }, w)
		return err
	})
	if told.Load() != 3 {
		t.Errorf("the launcher was told %d times, want once by each of 3 ranks", told.Load())
	}
}
