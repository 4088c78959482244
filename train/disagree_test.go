package train

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
)

// onTwo makes a short run of a parameter on two ranks, of which change gets the number, and returns the error of each.
func onTwo(t *testing.T, change func(rank int, r *Run)) []error {
	return commtest.Ranks(t.Context(), 2, func(ctx context.Context, world *comm.Comm) error {
		m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: 2})
		if err != nil {
			return err
		}
		w := dtensor.Full(m, tensor.Float32, 1, []int{4}, layout.Replicate())
		params := nn.Params(func(yield func(string, *dtensor.Tensor) bool) { yield("w", w) })
		r := Run{Loss: func(int, int) *dtensor.Tensor { return w.Square().Sum(nil, false) }, Params: params,
			Steps: 3, CheckReplicas: -1, Out: io.Discard,
			Optimizer: optim.NewSGD([]*dtensor.Tensor{w}, optim.SGDConfig{}), Rate: optim.Constant{Rate: 0.1}, Clip: 1}
		change(world.Rank(), &r)
		return r.Do(ctx, world, func(string, ...any) {})
	})
}

func TestRanksOfOtherSettingsDisagree(t *testing.T) {
	for want, change := range map[string]func(r *Run){
		"rank 0's is of Clip 1, Accumulate 1 and a Rate of 0, rank 1's of Clip 2,": func(r *Run) { r.Clip = 2 },
		"rank 1's of Clip 1, Accumulate 2":                                         func(r *Run) { r.Accumulate = 2 },
		"and a Rate of 0.2; give the same on all ranks":                            func(r *Run) { r.Rate = optim.Constant{Rate: 0.2} },
	} {
		for rank, err := range onTwo(t, func(rank int, r *Run) {
			if rank == 1 {
				change(r)
			}
		}) {
			if !errors.Is(err, comm.ErrMismatch) || !strings.Contains(err.Error(), want) {
				t.Errorf("rank %d: got %v, want %q in it", rank, err, want)
			}
		}
	}
	for rank, err := range onTwo(t, func(int, *Run) {}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// Metrics that rank 0 cannot open or write end the run on every rank with rank 0's error.
func TestAllRanksSeeThatMetricsFail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "losses.csv")
	for rank, err := range onTwo(t, func(rank int, r *Run) { r.Metrics = path }) {
		if err == nil || !strings.Contains(err.Error(), "losses.csv") || rank == 1 && !strings.HasPrefix(err.Error(), "rank 0: ") {
			t.Errorf("rank %d: got %v", rank, err)
		}
	}
	wrong := errors.New("the disk is full")
	for rank, err := range commtest.Ranks(t.Context(), 2, func(ctx context.Context, world *comm.Comm) error {
		l := loop{Run: &Run{}, world: world}
		if world.Rank() == 0 {
			l.failed = wrong // of a step before
		}
		_, _, _, err := l.share(ctx, 1, false, false)
		return err
	}) {
		if err == nil || !strings.Contains(err.Error(), wrong.Error()) {
			t.Errorf("rank %d: got %v", rank, err)
		}
	}
}
