package nn_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/tensor"
)

// Blocks whose parameters, positions, heads and experts are all divided, and recomputed,
// have the loss and gradients of one rank: on a mesh (dp, cp, tp) of 8 ranks, too.
func TestCombinations(t *testing.T) {
	var want map[string][]float32
	for _, size := range [][3]int{{1, 1, 1}, {2, 2, 2}, {1, 4, 2}, {2, 1, 2}, {1, 2, 1}} {
		commtest.Run(t, size[0]*size[1]*size[2], func(ctx context.Context, world *comm.Comm) error {
			mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: size[0]}, dtensor.Axis{Name: "cp", Size: size[1]},
				dtensor.Axis{Name: "tp", Size: size[2]})
			if err != nil {
				return err
			}
			got, err := combined(ctx, mesh)
			if err != nil {
				return err
			}
			if world.Size() == 1 {
				want = got
			}
			for name, v := range inOrder(want) {
				if !near(got[name], v) {
					return fmt.Errorf("mesh %v: %s is %v, want %v", size, name, got[name], v)
				}
			}
			return nil
		})
	}
}

func combined(ctx context.Context, mesh *dtensor.Mesh) (map[string][]float32, error) {
	init := nn.NewInit(mesh, 1)
	rope := nn.NewRope(init, nn.RopeConfig{HeadDim: 4, Positions: 16})
	x := wave(mesh, 1, []int{4, 8, 16}, layout.Shard(0), layout.Shard(1), layout.Replicate())
	params := []*dtensor.Tensor{x}
	var blocks []*nn.Block
	for range 2 {
		b := nn.NewBlock(init, nn.BlockConfig{Width: 16, Heads: 4, KVHeads: 2, Gated: true, Rope: rope, TensorAxis: "tp", ContextAxis: "cp"})
		nn.Shard(b, "dp")
		blocks, params = append(blocks, b), append(params, nn.Tensors(b.Params())...)
	}
	experts := nn.NewMoE(init, nn.MoEConfig{Width: 16, Hidden: 8, Experts: 4, Axis: "dp"})
	params = append(params, nn.Tensors(experts.Params())...)
	value, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		h := x
		for _, b := range blocks {
			h = dtensor.Recompute(b.Forward, h)
		}
		whole := h.Redistribute(layout.Shard(0), layout.Replicate(), layout.Replicate()) // experts take tokens in order
		y, balance := experts.Forward(whole)
		return whole.Add(y).Square().Mean(nil, false).Add(balance.Scale(0.01))
	}, params...)
	if err != nil {
		return nil, err
	}
	all := map[string][]float32{"loss": tensor.ToSlice[float32](value.Full())}
	for i, g := range grads {
		all[fmt.Sprint("gradient ", i)] = tensor.ToSlice[float32](g.Dense().Full())
	}
	return all, nil
}

// Positions that are divided have no masks.
func TestContextRefusal(t *testing.T) {
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		a := nn.NewAttention(nn.NewInit(mesh, 1), nn.AttentionConfig{Width: 4, Heads: 2, ContextAxis: "dp"})
		x := dtensor.Zeros(mesh, tensor.Float32, []int{1, 4, 4}, layout.Shard(1), layout.Replicate())
		err := dtensor.Try(ctx, mesh, func() { a.ForwardWith(x, nn.AttentionInput{Memory: x}) })
		if divided := mesh.Axes()[0].Size > 1; divided != (err != nil && strings.Contains(err.Error(), "has no mask")) {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
}
