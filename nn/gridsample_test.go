package nn_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/tensor"
)

func TestGridSampleAgainstPyTorch(t *testing.T) {
	all := references(t)
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		for name, c := range inOrder(map[string]nn.GridSampleConfig{
			"grid":                {},
			"grid corners":        {AlignCorners: true},
			"grid border":         {Border: true},
			"grid nearest":        {Nearest: true},
			"grid nearest border": {Nearest: true, Border: true, AlignCorners: true},
		}) {
			for _, second := range []layout.Placement{whole, s1, layout.Shard(2)} {
				x, places := wave(mesh, 1, []int{3, 2, 4, 5}, s0, second), wave(mesh, 2, []int{3, 2, 3, 2}, s0, second)
				if err := compare(ctx, all[name], func() *dtensor.Tensor { return nn.GridSample(x, places.Scale(1.2), c) }, x, places); err != nil {
					return fmt.Errorf("%v: %w", x.Layout(), err)
				}
			}
		}
		x := dtensor.Zeros(mesh, tensor.BFloat16, []int{2, 1, 3, 3}, whole, whole)
		err := dtensor.Try(ctx, mesh, func() {
			if y := nn.GridSample(x, dtensor.Zeros(mesh, tensor.Float32, []int{2, 0, 4, 2}, whole, whole), nn.GridSampleConfig{}); y.Numel() != 0 ||
				y.DType() != tensor.BFloat16 {
				dtensor.Throw(fmt.Errorf("of no places got %v", y))
			}
			nn.GridSample(x, x, nn.GridSampleConfig{})
		})
		if err == nil || !strings.Contains(err.Error(), "give x [B, C, H, W]") {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
}

// Places that are no numbers, or far away, are outside or unknown, as in PyTorch, and no index of a pixel.
func TestGridSampleOfStrangePlaces(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	places := []float32{nan, 0, inf, 0, -inf, 0, 1e20, 0, -1e20, 0, 0, nan, 3e9, 0.2}
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		return dtensor.Try(ctx, mesh, func() {
			pixels := tensor.Cast(tensor.Arange(mesh.Device(), tensor.Int64, 1, 20), tensor.Float32).Reshape(1, 1, 4, 5)
			x := dtensor.Distribute(mesh, pixels, whole, whole)
			grid := dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), places, 1, 1, 7, 2), whole, whole)
			for _, c := range []struct {
				nn.GridSampleConfig
				want string
			}{
				{nn.GridSampleConfig{}, "[NaN NaN NaN 0 0 NaN 0]"},
				{nn.GridSampleConfig{Border: true}, "[8.5 12.5 8.5 12.5 8.5 3 14.5]"},
				{nn.GridSampleConfig{Nearest: true}, "[0 0 0 0 0 0 0]"},
				{nn.GridSampleConfig{Nearest: true, Border: true}, "[11 15 11 15 11 3 15]"},
			} {
				if got := fmt.Sprint(tensor.ToSlice[float32](nn.GridSample(x, grid, c.GridSampleConfig).Full())); got != c.want {
					dtensor.Throw(fmt.Errorf("%+v: %s, want %s", c.GridSampleConfig, got, c.want))
				}
			}
		})
	})
}

// With Border a place at an edge, as the corners of the grid that changes nothing are, has no gradient, as in PyTorch.
func TestGridSampleAtEdges(t *testing.T) {
	places := []float32{-1, -1, 1, 1, 0, 0, -1, 1, 2, 0, 0.5, -1}
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		return dtensor.Try(ctx, mesh, func() {
			x := dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), []float32{0, 1, 2, 10, 12, 14, 30, 33, 36}, 1, 1, 3, 3), whole, whole)
			grid := dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), places, 1, 1, 6, 2), whole, whole)
			for _, c := range []struct {
				nn.GridSampleConfig
				want string
			}{
				{nn.GridSampleConfig{Border: true, AlignCorners: true}, "[0 0 0 0 2 21 0 0 0 22 1 0]"},
				{nn.GridSampleConfig{AlignCorners: true}, "[1 10 -36 -36 2 21 3 -30 0 0 1 11.5]"},
			} {
				grad := dtensor.Gradients(func() *dtensor.Tensor { return nn.GridSample(x, grid, c.GridSampleConfig).Sum(nil, false) }, grid)[0]
				if got := fmt.Sprint(tensor.ToSlice[float32](grad.Full())); got != c.want {
					dtensor.Throw(fmt.Errorf("%+v: %s, want %s", c.GridSampleConfig, got, c.want))
				}
			}
		})
	})
}

func TestAdaptivePoolAgainstPyTorch(t *testing.T) {
	all := references(t)
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		for name, c := range inOrder(map[string]struct{ x, sizes []int }{
			"adaptive 1d": {[]int{3, 2, 7}, []int{3}},
			"adaptive 2d": {[]int{2, 3, 5, 4}, []int{3, 2}},
			"adaptive up": {[]int{2, 2, 2, 3}, []int{3, 0}},
			"adaptive 3d": {[]int{3, 2, 3, 2, 4}, []int{2, 1, 3}},
		}) {
			for _, second := range []layout.Placement{whole, s1, layout.Shard(2)} {
				x := wave(mesh, 1, c.x, s0, second)
				for kind, pool := range inOrder(map[string]*nn.AdaptivePool{
					"avg": nn.NewAdaptiveAvgPool(c.sizes...), "max": nn.NewAdaptiveMaxPool(c.sizes...)}) {
					if err := compare(ctx, all[name+" "+kind], func() *dtensor.Tensor { return pool.Forward(x) }, x); err != nil {
						return fmt.Errorf("%v: %w", x.Layout(), err)
					}
				}
			}
		}
		for says, f := range inOrder(map[string]func(){
			"the sizes are [0 -1]":        func() { nn.NewAdaptiveAvgPool(0, -1) },
			"2 dimensions of positions":   func() { nn.NewAdaptiveMaxPool(1, 1).Forward(wave(mesh, 1, []int{3, 2, 7}, s0, whole)) },
			"give one for each dimension": func() { nn.NewAdaptiveMaxPool() },
		}) {
			if err := dtensor.Try(ctx, mesh, f); err == nil || !strings.Contains(err.Error(), says) {
				return fmt.Errorf("got %v, want %q", err, says)
			}
		}
		return nil
	})
}

// Of equal elements the first gets the gradient of a maximum, in rows before columns.
func TestAdaptivePoolOfEquals(t *testing.T) {
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		x := dtensor.Zeros(mesh, tensor.Float32, []int{1, 1, 3, 3}, whole, whole)
		_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			return nn.NewAdaptiveMaxPool(2, 2).Forward(x).Sum(nil, false)
		}, x)
		if err != nil {
			return err
		}
		if got, want := tensor.ToSlice[float32](grads[0].Dense().Full()), []float32{1, 1, 0, 1, 1, 0, 0, 0, 0}; !near(got, want) {
			return fmt.Errorf("got %v, want %v", got, want)
		}
		return nil
	})
}
