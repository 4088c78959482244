package nn_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/tensor"
)

func TestUpsampleAgainstPyTorch(t *testing.T) {
	all := references(t)
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		for name, c := range inOrder(map[string]struct {
			x      []int
			config nn.UpsampleConfig
		}{
			"upsample nearest 1d":            {[]int{3, 2, 4}, nn.UpsampleConfig{Size: []int{7}}},
			"upsample nearest 2d":            {[]int{3, 2, 3, 4}, nn.UpsampleConfig{Scale: 2}},
			"upsample nearest down":          {[]int{2, 3, 5, 7}, nn.UpsampleConfig{Size: []int{2, 3}}},
			"upsample linear":                {[]int{3, 2, 5}, nn.UpsampleConfig{Size: []int{8}, Linear: true}},
			"upsample linear scaled":         {[]int{3, 2, 5}, nn.UpsampleConfig{Scale: 1.7, Linear: true}},
			"upsample linear corners":        {[]int{3, 2, 5}, nn.UpsampleConfig{Size: []int{9}, Linear: true, AlignCorners: true}},
			"upsample bilinear":              {[]int{1, 2, 3, 4}, nn.UpsampleConfig{Scale: 2, Linear: true}},
			"upsample bilinear corners":      {[]int{3, 1, 3, 4}, nn.UpsampleConfig{Size: []int{5, 7}, Linear: true, AlignCorners: true}},
			"upsample bilinear down":         {[]int{3, 2, 5, 7}, nn.UpsampleConfig{Size: []int{2, 3}, Linear: true}},
			"upsample bilinear down corners": {[]int{2, 2, 5, 6}, nn.UpsampleConfig{Size: []int{1, 3}, Linear: true, AlignCorners: true}},
			"upsample bicubic":               {[]int{3, 2, 3, 4}, nn.UpsampleConfig{Size: []int{5, 9}, Cubic: true}},
			"upsample bicubic scaled":        {[]int{2, 1, 3, 5}, nn.UpsampleConfig{Scale: 1.5, Cubic: true}},
			"upsample bicubic corners":       {[]int{2, 2, 4, 3}, nn.UpsampleConfig{Size: []int{7, 5}, Cubic: true, AlignCorners: true}},
			"upsample bicubic down":          {[]int{2, 3, 6, 7}, nn.UpsampleConfig{Size: []int{2, 3}, Cubic: true}},
		}) {
			for _, second := range []layout.Placement{whole, s1, layout.Shard(2)} {
				x := wave(mesh, 1, c.x, s0, second)
				layer := nn.NewUpsample(c.config)
				if err := compare(ctx, all[name], func() *dtensor.Tensor { return layer.Forward(x) }, x); err != nil {
					return fmt.Errorf("%v: %w", x.Layout(), err)
				}
			}
		}
		return nil
	})
}

// In bfloat16 it is computed in float32 and rounded once.
func TestUpsampleOfHalves(t *testing.T) {
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		return dtensor.Try(ctx, mesh, func() {
			layer := nn.NewUpsample(nn.UpsampleConfig{Size: []int{5, 7}, Linear: true})
			x := wave(mesh, 1, []int{3, 2, 3, 4}, batch()...).Cast(tensor.BFloat16)
			got, want := layer.Forward(x), layer.Forward(x.Cast(tensor.Float32)).Cast(tensor.BFloat16)
			if d := got.Sub(want).Abs().Amax(nil, false).Cast(tensor.Float32).Item(); got.DType() != tensor.BFloat16 || d != 0 {
				dtensor.Throw(fmt.Errorf("%v differs by %v", got, d))
			}
		})
	})
}

func TestPReLUAgainstPyTorch(t *testing.T) {
	all := references(t)
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		for name, c := range inOrder(map[string]struct {
			x      []int
			slopes int
		}{"prelu": {[]int{3, 4}, 1}, "prelu of channels": {[]int{3, 4, 2}, 4}}) {
			for _, channels := range []layout.Placement{whole, s1} {
				p := nn.NewPReLU(nn.NewInit(mesh, 1), c.slopes)
				x, w := wave(mesh, 1, c.x, s0, channels), again(&p.Weight, 2)
				if err := compare(ctx, all[name], func() *dtensor.Tensor { return p.Forward(x) }, x, w); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
