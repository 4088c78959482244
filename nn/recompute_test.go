package nn_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/tensor"
)

// A pass is what a step of some layers came to on one rank.
type pass struct {
	values map[string][]float32 // the loss and the gradients, whole
	stats  comm.Stats
	memory int // the most bytes in use
}

// An applied is a way to apply a layer.
type applied func(f func(x *dtensor.Tensor) *dtensor.Tensor, x *dtensor.Tensor) *dtensor.Tensor

// stack runs some blocks with dropout on a mesh (dp, tp), through apply. With
// shard their parameters are divided over dp.
func stack(ctx context.Context, world *comm.Comm, dp, tp, blocks, width int, shard bool, apply applied) (*pass, error) {
	mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: dp}, dtensor.Axis{Name: "tp", Size: tp})
	if err != nil {
		return nil, err
	}
	mesh.StartKeys(1)
	init := nn.NewInit(mesh, 3)
	var layers []*nn.Block
	params := []*dtensor.Tensor{wave(mesh, 1, []int{4, 8, width}, batch()...)}
	for range blocks {
		b := nn.NewBlock(init, nn.BlockConfig{Width: width, Heads: 2, Bias: true, Dropout: 0.1, Seed: 5, TensorAxis: "tp"})
		if shard {
			nn.Shard(b, "dp")
		}
		layers, params = append(layers, b), append(params, nn.Tensors(b.Params())...)
	}
	recorder := world.Record()
	value, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		h := params[0]
		for _, b := range layers {
			h = apply(b.Forward, h)
		}
		return h.Square().Mean(nil, false)
	}, params...)
	recorder.Stop()
	if err != nil {
		return nil, err
	}
	p := &pass{values: map[string][]float32{"loss": tensor.ToSlice[float32](value.Full())}, stats: recorder.Stats(),
		memory: mesh.Device().Stats().HighWater}
	for i, g := range grads {
		p.values[fmt.Sprint("gradient ", i)] = tensor.ToSlice[float32](g.Dense().Full())
	}
	return p, nil
}

func plainly(f func(x *dtensor.Tensor) *dtensor.Tensor, x *dtensor.Tensor) *dtensor.Tensor {
	return f(x)
}

// twice recomputes inside of what is recomputed.
func twice(f func(x *dtensor.Tensor) *dtensor.Tensor, x *dtensor.Tensor) *dtensor.Tensor {
	return dtensor.Recompute(func(x *dtensor.Tensor) *dtensor.Tensor { return dtensor.Recompute(f, x) }, x)
}

// Recomputed blocks have the same loss and gradients, bit for bit, their dropout too. Their
// communication is made once more.
func TestRecompute(t *testing.T) {
	for _, size := range [][2]int{{1, 1}, {2, 1}, {1, 2}, {2, 2}} {
		commtest.Run(t, size[0]*size[1], func(ctx context.Context, world *comm.Comm) error {
			var want *pass
			for i, apply := range []applied{plainly, dtensor.Recompute, twice} {
				got, err := stack(ctx, world, size[0], size[1], 3, 8, false, apply)
				if err != nil {
					return err
				}
				if i == 0 {
					want = got
				}
				for name, v := range want.values {
					if !slices.Equal(got.values[name], v) {
						return fmt.Errorf("mesh %v, way %d: %s is %v, want %v", size, i, name, got.values[name], v)
					}
				}
				const blocks, forward, backward = 3, 2, 2
				if n := got.stats.Kinds[comm.AllReduceKind].Calls; size == [2]int{1, 2} && n != blocks*(forward*(1+i)+backward) {
					return fmt.Errorf("way %d: %d all-reduces: %v", i, n, got.stats.Causes)
				}
			}
			return nil
		})
	}
}

// Recomputed blocks take less than half the memory.
func TestRecomputeMemory(t *testing.T) {
	memory := func(apply applied) (bytes int) {
		commtest.Run(t, 1, func(ctx context.Context, world *comm.Comm) error {
			p, err := stack(ctx, world, 1, 1, 8, 16, false, apply)
			if err == nil {
				bytes = p.memory
			}
			return err
		})
		return bytes
	}
	plain, less := memory(plainly), memory(dtensor.Recompute)
	t.Logf("8 blocks: %d bytes, %d with Recompute", plain, less)
	if less > plain/2 {
		t.Errorf("8 blocks take %d bytes, %d with Recompute", plain, less)
	}
}

// Outside of ValueAndGrad Recompute is the function. A running average moves once a step,
// and an error in the second run leaves all as it was.
func TestRecomputeOnce(t *testing.T) {
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		x := wave(mesh, 1, []int{4, 3}, batch()...)
		moved := func(apply applied) ([]float32, error) {
			n := nn.NewBatchNorm(nn.NewInit(mesh, 1), 3)
			_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return apply(n.Forward, x).Sum(nil, false) }, x)
			return tensor.ToSlice[float32](n.RunningMean.Full()), err
		}
		want, err := moved(plainly)
		if err != nil {
			return err
		}
		got, err := moved(twice)
		if err != nil || !slices.Equal(got, want) {
			return fmt.Errorf("the running mean is %v, want %v; %v", got, want, err)
		}
		if y := dtensor.Recompute((*dtensor.Tensor).Exp, x); mesh.Training() || y.Shape()[0] != 4 {
			return fmt.Errorf("outside of ValueAndGrad it is %v", y)
		}
		runs := 0
		_, _, err = dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			return dtensor.Recompute(func(x *dtensor.Tensor) *dtensor.Tensor {
				if runs++; runs == 2 {
					dtensor.Throw(fmt.Errorf("the second run"))
				}
				return x.Exp()
			}, x).Sum(nil, false)
		}, x)
		if err == nil || mesh.Training() || mesh.Replaying() {
			return fmt.Errorf("after %d runs: %v, training %v", runs, err, mesh.Training())
		}
		_, err = moved(plainly)
		return err
	})
}
