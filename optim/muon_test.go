package optim_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
)

// Muon gathers a sharded matrix in one call and a replicated one in none, has the same bits in every layout, and takes no vector.
func TestMuon(t *testing.T) {
	var want []float64
	for _, l := range layouts {
		meshtest.On(t, l.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			p := spread(m, tensor.Float32, meshtest.Numbers(35, 1, 1), []int{5, 7}, l.places...)
			opt := optim.NewMuon([]*dtensor.Tensor{p}, optim.MuonConfig{})
			record := m.Comm().Record()
			for step := range 3 {
				g := spread(m, tensor.Float32, meshtest.Numbers(35, float64(step), 1), []int{5, 7}, l.places...)
				if err := opt.Step([]dtensor.Grad{dtensor.Dense(g)}, 0.1); err != nil {
					return err
				}
			}
			calls, sharded := len(record.Stop()), 0
			for axis, place := range l.places {
				if place.IsShard() && l.mesh[axis] > 1 {
					sharded = 3
				}
			}
			if len(l.mesh) == 1 && calls != sharded {
				return fmt.Errorf("%v: %d calls, want %d", l.places, calls, sharded)
			}
			got := meshtest.Values(p.Full())
			if m.Comm().Rank() == 0 {
				if want == nil {
					want = got
				}
				for i := range got {
					if got[i] != want[i] {
						return fmt.Errorf("%v: element %d is %v, want %v", l.places, i, got[i], want[i])
					}
				}
			}
			return nil
		})
	}
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		err := dtensor.Try(ctx, m, func() {
			optim.NewMuon([]*dtensor.Tensor{dtensor.Full(m, tensor.Float32, 1, []int{4}, rowWise)}, optim.MuonConfig{})
		})
		if err == nil || !strings.Contains(err.Error(), "parameter 0 is") || !strings.Contains(err.Error(), "no matrix") {
			return fmt.Errorf("a vector: %v", err)
		}
		return comm.Barrier(ctx, m.Comm())
	})
}

// Its steps are nearly orthogonal: the rows of what a step subtracts, over its rate, have lengths near 1.
func TestMuonStepsAreOrthogonal(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		p := dtensor.Full(m, tensor.Float32, 0, []int{4, 64}, colWise)
		opt := optim.NewMuon([]*dtensor.Tensor{p}, optim.MuonConfig{})
		g := dtensor.Normal(m, dtensor.Key{Seed: 1}, 0, 1, []int{4, 64}, colWise)
		if err := opt.Step([]dtensor.Grad{dtensor.Dense(g)}, 1); err != nil {
			return err
		}
		x := meshtest.Values(p.Full())
		for r := range 4 {
			sum := 0.0
			for _, v := range x[r*64 : (r+1)*64] {
				sum += v * v
			}
			if math.Abs(math.Sqrt(sum)-1) > 0.35 {
				return fmt.Errorf("row %d has length %v", r, math.Sqrt(sum))
			}
		}
		return nil
	})
}
