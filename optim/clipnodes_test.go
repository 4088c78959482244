package optim_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
)

// With SameBits the norm has the bits of one rank's in every layout, and ranks that have nodes of
// the sums of squares send each other one number for each gradient, in one call.
func TestNormHasTheSameBits(t *testing.T) {
	var want uint64
	for _, mesh := range [][]int{{1, 1}, {2, 1}, {1, 3}, {3, 1}, {4, 1}, {5, 1}, {2, 2}, {3, 2}, {8, 1}} {
		meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			m.SetSameBits(true)
			for _, places := range [][]layout.Placement{{rowWise, rowWise}, {rowWise, replicate}, {replicate, colWise}, {rowWise, colWise}} {
				var params []*dtensor.Tensor
				var grads []dtensor.Grad
				for i, shape := range [][]int{{64, 8}, {48, 3}, {7, 5}, {16, 16}} {
					values := meshtest.Numbers(shape[0]*shape[1], float64(i), 1)
					dt := []tensor.DType{tensor.Float32, tensor.Float64, tensor.Float32, tensor.BFloat16}[i]
					params = append(params, spread(m, dt, values, shape, places...))
					grads = append(grads, dtensor.Dense(spread(m, dt, values, shape, places...)))
				}
				values := meshtest.Numbers(64, 77, 1)
				params = append(params, spread(m, tensor.Float32, meshtest.Numbers(64, 9, 1), []int{32, 2}, places[0], replicate))
				grads = append(grads, rowsOf(params[4], values, []int{4, 1, 4, 31, 17}))
				record := m.Comm().Record()
				norm, err := optim.ClipGradNorm(ctx, params, grads, math.Inf(1))
				record.Stop()
				if err != nil {
					return err
				}
				if m.Size() == 1 && record.Stats().Total().Calls > 0 {
					return fmt.Errorf("one rank makes %s", record.Stats().Calls())
				}
				got := math.Float64bits(norm)
				if m.Size() == 1 {
					want = got
				}
				if got != want {
					return fmt.Errorf("mesh %v, %v: the norm is %v, want %v", m, places, norm, math.Float64frombits(want))
				}
				// The gradient of 7 rows is gathered, whose parts are no nodes.
				if calls := record.Stats().Calls(); places[1] == replicate && (mesh[0] == 2 && mesh[1] == 1 || mesh[0] == 4) &&
					calls != "AllGather×1, AllGatherV×1" {
					return fmt.Errorf("mesh %v, %v: the calls are %s", m, places, calls)
				}
			}
			return nil
		})
	}
}

// With SameBits the norm does not depend on which stages have which parameters.
func TestNormOfStagesHasTheSameBits(t *testing.T) {
	commtest.Run(t, 4, func(ctx context.Context, world *comm.Comm) error {
		mesh := func(ranks ...int) *dtensor.Mesh {
			m, err := dtensor.NewMeshOf(world, ranks, dtensor.Axis{Name: "dp", Size: len(ranks)})
			if err != nil {
				panic(err)
			}
			m.SetSameBits(true)
			return m
		}
		whole, first, second := mesh(0, 1, 2, 3), mesh(2, 0, 1), mesh(3)
		norm := func(meshes ...*dtensor.Mesh) (float64, error) {
			var params []*dtensor.Tensor
			var grads []dtensor.Grad
			for i, m := range meshes {
				params = append(params, spread(m, tensor.Float32, meshtest.Numbers(48*5, float64(i), 1), []int{48, 5}, rowWise))
				grads = append(grads, dtensor.Dense(params[i]))
			}
			return optim.ClipGradNorm(ctx, params, grads, math.Inf(1))
		}
		want, err := norm(whole, whole, whole, whole)
		if err != nil {
			return err
		}
		for _, stages := range [][]*dtensor.Mesh{{first, second, first, second}, {second, first, first, first}, {first, first, second, first}} {
			if got, err := norm(stages...); err != nil || got != want {
				return fmt.Errorf("%v: the norm is %v, %v, want %v", stages, got, err, want)
			}
		}
		return nil
	})
}
