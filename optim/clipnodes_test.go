package optim_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
)

// With SameBits the norm has the bits of one rank's in every layout. The ranks send each other a few numbers of each gradient, in
// one call. Of what is not cut at leaves of the sum, they move what lies between.
func TestNormHasTheSameBits(t *testing.T) {
	byMiddle, byLast := layout.Shard(1), layout.Shard(2)
	few := []kindOfGradient{{tensor.Float32, []int{64, 8}}, {tensor.Float64, []int{48, 3}}, {tensor.Float32, []int{7, 5}},
		{tensor.BFloat16, []int{16, 16}}, {tensor.Float32, []int{1, 40}}, {tensor.Float32, []int{0, 4}}, {tensor.Float32, []int{3, 1}}}
	long := []kindOfGradient{{tensor.Float32, []int{1000, 17}}, {tensor.BFloat16, []int{33, 768}}, {tensor.Float64, []int{50, 37}}}
	deep := []kindOfGradient{{tensor.Float32, []int{5, 24, 34}}, {tensor.Float32, []int{1, 2, 300}}, {tensor.BFloat16, []int{40, 3, 1}}}
	for _, of := range []struct {
		grads  []kindOfGradient
		places [][]layout.Placement
	}{
		{few, [][]layout.Placement{{rowWise, rowWise}, {rowWise, replicate}, {replicate, colWise}, {colWise, rowWise}, {colWise, colWise}}},
		{long, [][]layout.Placement{{rowWise, rowWise}, {rowWise, colWise}, {colWise, rowWise}, {layout.ShardCyclic(), colWise}}},
		{deep, [][]layout.Placement{{byMiddle, byLast}, {byLast, byMiddle}, {rowWise, byLast}, {byMiddle, replicate}}},
	} {
		var want uint64
		for _, mesh := range [][]int{{1, 1}, {2, 1}, {1, 3}, {3, 1}, {4, 1}, {5, 1}, {2, 2}, {3, 2}, {8, 1}, {1, 20}} {
			meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				m.SetSameBits(true)
				for _, places := range of.places {
					norm, stats, err := normOf(ctx, m, of.grads, places)
					if err != nil {
						return err
					}
					got := math.Float64bits(norm)
					if m.Size() == 1 {
						want = got
					}
					if got != want {
						return fmt.Errorf("mesh %v, %v: the norm is %v, want %v", m, places, norm, math.Float64frombits(want))
					}
					switch calls := stats.Calls(); {
					case m.Size() == 1 && calls != "":
						return fmt.Errorf("one rank makes %s", calls)
					case mesh[1] == 1 && strings.Contains(calls, "AllGatherV"): // two axes may divide a dimension so
						return fmt.Errorf("mesh %v, %v: a gradient is gathered: %v", m, places, stats.Causes)
					}
				}
				return nil
			})
		}
	}
}

// A kindOfGradient is a type and a shape.
type kindOfGradient struct {
	dt    tensor.DType
	shape []int
}

// normOf returns the norm of gradients and of one of rows, and what it calls.
func normOf(ctx context.Context, m *dtensor.Mesh, kinds []kindOfGradient, places []layout.Placement) (float64, comm.Stats, error) {
	var params []*dtensor.Tensor
	var grads []dtensor.Grad
	for i, k := range kinds {
		n := 1
		for _, size := range k.shape {
			n *= size
		}
		values := meshtest.Numbers(n, float64(i), 1)
		params = append(params, spread(m, k.dt, values, k.shape, places...))
		grads = append(grads, dtensor.Dense(spread(m, k.dt, values, k.shape, places...)))
	}
	table := spread(m, tensor.Float32, meshtest.Numbers(64, 9, 1), []int{32, 2}, rowWise, replicate)
	params, grads = append(params, table), append(grads, rowsOf(table, meshtest.Numbers(64, 77, 1), []int{4, 1, 4, 31, 17}))
	record := m.Comm().Record()
	norm, err := optim.ClipGradNorm(ctx, params, grads, math.Inf(1))
	record.Stop()
	return norm, record.Stats(), err
}

// With SameBits no part of a gradient is moved that is cut at leaves: of columns a rank sends 16 numbers, of rows or both one of
// each node.
func TestNormMovesNumbers(t *testing.T) {
	for _, c := range []struct {
		mesh    []int
		places  []layout.Placement
		numbers int
	}{
		{[]int{2, 1}, []layout.Placement{colWise, replicate}, 16}, {[]int{1, 4}, []layout.Placement{replicate, colWise}, 16},
		{[]int{2, 1}, []layout.Placement{rowWise, replicate}, 1}, {[]int{2, 2}, []layout.Placement{rowWise, colWise}, 8},
		{[]int{2, 2}, []layout.Placement{colWise, colWise}, 16},
	} {
		meshtest.On(t, c.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			m.SetSameBits(true)
			p := spread(m, tensor.Float32, meshtest.Numbers(768*48, 1, 1), []int{768, 48}, c.places...)
			record := m.Comm().Record()
			_, err := optim.ClipGradNorm(ctx, []*dtensor.Tensor{p}, []dtensor.Grad{dtensor.Dense(p)}, math.Inf(1))
			record.Stop()
			if stats := record.Stats(); err != nil || stats.Calls() != "AllGather×1" || stats.Total().Bytes != 8*c.numbers {
				return fmt.Errorf("mesh %v, %v: %s of %d bytes: %v", m, c.places, stats.Calls(), stats.Total().Bytes, err)
			}
			return nil
		})
	}
}

// With SameBits a sum of squares that float32 cannot hold is found where the norm is: its 16 rows are added up, and no others.
func TestNormFindsWhatIsTooLarge(t *testing.T) {
	meshtest.On(t, []int{2, 1}, func(ctx context.Context, m *dtensor.Mesh) error {
		m.SetSameBits(true)
		values := make([]float64, 256*5000)
		for r := range 16 {
			values[r*5000] = 6e18
		}
		var params []*dtensor.Tensor
		var grads []dtensor.Grad
		for _, v := range [][]float64{{1}, values} {
			p := spread(m, tensor.Float32, v, []int{(len(v) + 4999) / 5000, min(len(v), 5000)}, colWise, replicate)
			params, grads = append(params, p), append(grads, dtensor.Dense(p))
		}
		_, err := optim.ClipGradNorm(ctx, params, grads, 1)
		if !errors.Is(err, optim.ErrNotFinite) || !strings.Contains(err.Error(), "gradient 1,") {
			return fmt.Errorf("the error is %v", err)
		}
		return nil
	})
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
