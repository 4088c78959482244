package data

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// A batch on a mesh is the batch of one rank, whatever the axis divides.
func TestBatchOnAMesh(t *testing.T) {
	const rows, window = 5, 4
	s := sampler(t, 200, window, 3)
	wantIDs, wantTargets := batch(s, 7, 2, rows)
	w := NewWindows(counting(200), window)
	windowIDs, windowTargets := make([]int64, rows*window), make([]int64, rows*window)
	FillWindows(w, 2, windowIDs, windowTargets)
	for _, shape := range [][]int{{1, 1}, {2, 1}, {1, 3}, {3, 2}, {7, 1}} {
		meshtest.On(t, shape, func(ctx context.Context, m *dtensor.Mesh) error {
			same := func(what string, x *dtensor.Tensor, want []int64) {
				if got := tensor.ToSlice[int64](x.Full()); !slices.Equal(got, want) {
					dtensor.Throw(fmt.Errorf("%s: %v, want %v", what, got, want))
				}
			}
			err := dtensor.Try(ctx, m, func() {
				for _, axis := range []string{m.Axes()[0].Name, m.Axes()[1].Name, ""} {
					ids, targets := s.Batch(m, axis, 7, 2, rows)
					same("ids", ids, wantIDs)
					same("targets", targets, wantTargets)
					ids, targets = w.Batch(m, axis, 2, rows)
					same("ids of windows", ids, windowIDs)
					same("targets of windows", targets, windowTargets)
				}
			})
			if err != nil {
				return err
			}
			err = dtensor.Try(ctx, m, func() { s.Batch(m, "depth", 0, 0, rows) })
			if err == nil || !strings.Contains(err.Error(), `has no axis "depth"`) {
				return fmt.Errorf("an axis that is not there: %v", err)
			}
			return nil
		})
	}
}
