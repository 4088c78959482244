package checkpoint_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/gorun-spmd/gorun/checkpoint"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/internal/forecast"
)

// A program that runs for gorun plan keeps no checkpoints, and finds none.
func TestPlanKeepsNothing(t *testing.T) {
	for _, planned := range []bool{false, true} {
		root := filepath.Join(t.TempDir(), "kept")
		commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
			if planned {
				world.Internals().Attr(forecast.Key{}, func() any { return struct{ forecast.Watcher }{} })
			}
			store, err := checkpoint.Open(ctx, world, root, checkpoint.Options{})
			if err != nil {
				return err
			}
			n, state := world.Rank(), new(checkpoint.State)
			state.AddValue("n", &n)
			if err := store.Save(ctx, 3, state); err != nil {
				return err
			}
			if step, ok, err := store.Resume(ctx, state); ok == planned || err != nil {
				return fmt.Errorf("planned %v: resumed from step %d: %v, %v", planned, step, ok, err)
			}
			if err := checkpoint.Export(ctx, world, filepath.Join(root, "model"), state, checkpoint.ExportOptions{}); err != nil {
				return err
			}
			if err := checkpoint.Load(ctx, world, filepath.Join(root, "none"), state, checkpoint.LoadOptions{}); (err == nil) != planned {
				return fmt.Errorf("planned %v: what is not there was loaded: %v", planned, err)
			}
			sum, err := checkpoint.SHA256(ctx, world, state)
			if zeros := fmt.Sprintf("%064d", 0); (sum == zeros) != planned {
				return fmt.Errorf("planned %v: the hash is %s", planned, sum)
			}
			return err
		})
		if _, err := os.Stat(root); os.IsNotExist(err) != planned {
			t.Errorf("planned %v: %s: %v", planned, root, err)
		}
	}
}
