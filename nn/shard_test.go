package nn_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/tensor"
)

// Sharded blocks have the loss and gradients of whole ones, at once and recomputed. Every
// parameter is gathered once, or twice, and its gradient scattered.
func TestShard(t *testing.T) {
	for _, size := range [][2]int{{1, 1}, {2, 1}, {3, 1}, {4, 1}, {2, 2}} {
		commtest.Run(t, size[0]*size[1], func(ctx context.Context, world *comm.Comm) error {
			want, err := stack(ctx, world, size[0], size[1], 2, 8, false, plainly)
			if err != nil {
				return err
			}
			for i, apply := range []applied{plainly, dtensor.Recompute, dtensor.ScatterGradients} {
				got, err := stack(ctx, world, size[0], size[1], 2, 8, true, apply)
				if err != nil {
					return err
				}
				for name, v := range want.values {
					if !near(got.values[name], v) {
						return fmt.Errorf("mesh %v, way %d: %s is %v, want %v", size, i, name, got.values[name], v)
					}
				}
				if size != [2]int{4, 1} {
					continue
				}
				const params = 2 * (2 + 12) // of two blocks: two norms and six linear layers with a bias each
				k := got.stats.Kinds
				gathers := k[comm.AllGatherKind].Calls + k[comm.AllGatherVKind].Calls
				scatters := k[comm.ReduceScatterKind].Calls + k[comm.ReduceScatterVKind].Calls
				if gathers != []int{params, 2 * params, params}[i] || scatters != []int{1, params, params}[i] {
					return fmt.Errorf("way %d: %d all-gathers and %d reduce-scatters: %v", i, gathers, scatters, got.stats.Causes)
				}
			}
			return nil
		})
	}
}

// Four ranks with sharded blocks take much less memory than with whole ones.
func TestShardMemory(t *testing.T) {
	memory := func(shard bool, apply applied) (bytes int) {
		commtest.Run(t, 4, func(ctx context.Context, world *comm.Comm) error {
			p, err := stack(ctx, world, 4, 1, 8, 64, shard, apply)
			if err == nil && world.Rank() == 0 {
				bytes = p.memory
			}
			return err
		})
		return bytes
	}
	whole, sharded := memory(false, dtensor.Recompute), memory(true, dtensor.Recompute)
	zero1, zero2 := memory(true, plainly), memory(true, dtensor.ScatterGradients)
	t.Logf("8 blocks on 4 ranks: %d bytes on each, %d sharded, not recomputed %d, and with gradients scattered at once %d",
		whole, sharded, zero1, zero2)
	if sharded > whole/2 || zero2 > zero1*9/10 {
		t.Errorf("8 blocks on 4 ranks take %d bytes on each, %d sharded, not recomputed %d and %d", whole, sharded, zero1, zero2)
	}
}

// A layer of float32 that computes in half precision gathers its weight and scatters the gradient in that.
func TestShardOfHalf(t *testing.T) {
	commtest.Run(t, 4, func(ctx context.Context, world *comm.Comm) error {
		mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: 4})
		if err != nil {
			return err
		}
		const size, parts = 64, 4
		l := nn.NewLinear(nn.NewInit(mesh, 1), size, size, false, nn.Style{})
		nn.Shard(l, "dp")
		x := wave(mesh, 1, []int{8, size}, layout.Shard(0)).Cast(tensor.BFloat16)
		recorder := world.Record()
		_, _, err = dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			return dtensor.Recompute(l.Forward, x).Cast(tensor.Float32).Square().Mean(nil, false)
		}, l.Weight)
		recorder.Stop()
		if err != nil {
			return err
		}
		k := recorder.Stats().Kinds
		gather, scatter := k[comm.AllGatherVKind], k[comm.ReduceScatterVKind]
		if gather.Calls != 2 || gather.Bytes != 2*size*size/parts*2 || scatter.Calls != 1 || scatter.Bytes != size*size*2 ||
			k[comm.AllReduceKind].Bytes > 8 {
			return fmt.Errorf("%v", recorder.Stats().Causes)
		}
		return nil
	})
}

// A mesh has to have the axis.
func TestShardRefusal(t *testing.T) {
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		l := nn.NewRMSNorm(nn.NewInit(mesh, 1), 4)
		if err := dtensor.Try(ctx, mesh, func() { nn.Shard(l, "x") }); err == nil {
			return fmt.Errorf("it sharded %v", l.Weight)
		}
		return nil
	})
}
