package nn_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/tensor"
)

// step computes a loss of a block and the gradients of all its parameters on a
// mesh (dp, tp), as wholes, with parameters of type dt and activations of type in.
func step(ctx context.Context, world *comm.Comm, dp, tp, heads int, bias bool, dt, in tensor.DType) (map[string][]float32, *comm.Stats,
	error) {
	m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: dp}, dtensor.Axis{Name: "tp", Size: tp})
	if err != nil {
		return nil, nil, err
	}
	out := map[string][]float32{}
	var stats comm.Stats
	err = dtensor.Try(ctx, m, func() {
		init := nn.NewInit(m, 42)
		init.DType = dt
		block := nn.NewBlock(init, nn.BlockConfig{Width: 12, Heads: heads, Hidden: 20, Bias: bias, TensorAxis: "tp"})
		x := dtensor.Normal(m, dtensor.Key{Seed: 1}, 0, 1, []int{4, 5, 12}, layout.Shard(0), layout.Replicate()).Cast(in)
		params := nn.Tensors(block.Params())
		rec := world.Record()
		loss, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			y := block.Forward(x)
			if y.DType() != in {
				panic(fmt.Sprintf("the result is %v", y))
			}
			return y.Cast(tensor.Float32).Square().Mean(nil, false)
		}, params...)
		rec.Stop()
		stats = rec.Stats()
		if err != nil {
			panic(err)
		}
		out["loss"] = tensor.ToSlice[float32](loss.Full())
		i := 0
		for name, p := range block.Params() {
			if _, twice := out[name]; twice {
				panic("two parameters are named " + name)
			}
			g := grads[i].Dense()
			if p.DType() != dt || g.DType() != dt {
				panic(fmt.Sprintf("%s is %v, its gradient %v", name, p, g))
			}
			out[name] = tensor.ToSlice[float32](tensor.Cast(g.Full(), tensor.Float32))
			i++
		}
	})
	return out, &stats, err
}

// A block has the same loss and the same gradients on every mesh, in bfloat16 within a few
// roundings to 8 bits.
func TestBlockOnEveryMesh(t *testing.T) {
	for _, c := range []struct {
		heads int
		bias  bool
		dtype tensor.DType // of the parameters
		in    tensor.DType // of the activations
		tol   float64
	}{
		{4, false, tensor.Float32, tensor.Float32, 1e-5}, {3, true, tensor.Float32, tensor.Float32, 1e-5},
		{3, true, tensor.BFloat16, tensor.BFloat16, 0x1p-5}, {3, true, tensor.Float32, tensor.BFloat16, 0x1p-5},
		{3, true, tensor.BFloat16, tensor.Float32, 0x1p-5},
	} {
		var want map[string][]float32
		for _, mesh := range [][2]int{{1, 1}, {2, 1}, {1, 2}, {2, 2}, {1, 3}, {1, 4}, {4, 1}} {
			commtest.Run(t, mesh[0]*mesh[1], func(ctx context.Context, world *comm.Comm) error {
				got, _, err := step(ctx, world, mesh[0], mesh[1], c.heads, c.bias, c.dtype, c.in)
				if err != nil || world.Rank() != 0 {
					return err
				}
				if want == nil {
					want = got
					return nil
				}
				for name, w := range want {
					if !slices.EqualFunc(got[name], w, func(a, b float32) bool { return math.Abs(float64(a-b)) <= c.tol*(1+math.Abs(float64(b))) }) {
						return fmt.Errorf("%+v, mesh %v: %s is %v, want %v", c, mesh, name, got[name], w)
					}
				}
				return nil
			})
		}
	}
}

// A block of bfloat16 trains with AdamW, whose state is float32, and every mesh has the
// losses of one rank and about those of float32 parameters.
func TestBFloat16BlockTrains(t *testing.T) {
	var wide, want []float64
	for _, mesh := range [][2]int{{1, 1}, {1, 2}, {2, 1}} {
		commtest.Run(t, mesh[0]*mesh[1], func(ctx context.Context, world *comm.Comm) error {
			got, err := train(ctx, world, mesh[0], mesh[1], tensor.BFloat16)
			if err != nil || world.Rank() != 0 {
				return err
			}
			if want == nil {
				want = got
				wide, err = train(ctx, world, mesh[0], mesh[1], tensor.Float32)
				if err != nil {
					return err
				}
			}
			if last := len(got) - 1; !(got[last] < got[0]/4) {
				return fmt.Errorf("mesh %v: losses %v", mesh, got)
			}
			near := func(a, b float64) bool { return math.Abs(a-b) <= 0x1p-5*b }
			if !slices.EqualFunc(got, want, near) || !slices.EqualFunc(got, wide, near) {
				return fmt.Errorf("mesh %v: losses %v, on one rank %v, of float32 %v", mesh, got, want, wide)
			}
			return nil
		})
	}
}

// train returns the losses of some steps of AdamW on a block, towards fixed numbers.
func train(ctx context.Context, world *comm.Comm, dp, tp int, dt tensor.DType) (losses []float64, err error) {
	mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: dp}, dtensor.Axis{Name: "tp", Size: tp})
	if err != nil {
		return nil, err
	}
	init := nn.NewInit(mesh, 42)
	init.DType = dt
	block := nn.NewBlock(init, nn.BlockConfig{Width: 12, Heads: 3, Bias: true, TensorAxis: "tp"})
	numbers := func(stream uint64) *dtensor.Tensor {
		return dtensor.Normal(mesh, dtensor.Key{Seed: 1, Stream: stream}, 0, 1, []int{4, 5, 12}, layout.Shard(0), layout.Replicate())
	}
	x, y := numbers(1).Cast(dt), numbers(2)
	params := nn.Tensors(block.Params())
	adam := tensor.Adam{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 1e-2}
	adam.LR = 0.01
	var m, v []*tensor.Tensor
	for _, p := range params {
		zeros := func() *tensor.Tensor { return tensor.Zeros(mesh.Device(), tensor.Float32, p.Local().Shape()...) }
		m, v = append(m, zeros()), append(v, zeros())
	}
	for step := range 30 {
		loss, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			return block.Forward(x).Cast(tensor.Float32).Sub(y).Square().Mean(nil, false)
		}, params...)
		if err != nil {
			return nil, err
		}
		losses = append(losses, loss.Full().Item())
		for i, p := range params {
			adam.Step(p.Local(), grads[i].Dense().Local(), m[i], v[i], step+1)
		}
	}
	return losses, nil
}

// Under tensor parallelism a block has two all-reduces forward and two
// backward, the loss none and the weights none.
func TestBlockCounts(t *testing.T) {
	commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
		_, stats, err := step(ctx, world, 1, 2, 4, false, tensor.Float32, tensor.Float32)
		if err != nil {
			return err
		}
		if n := stats.Kinds[comm.AllReduceKind].Calls; n > 4 || stats.Total().Calls != n {
			return fmt.Errorf("a step communicates %v for %v, want at most 4 all-reduces", stats, stats.Causes)
		}
		return nil
	})
}

func TestParamNames(t *testing.T) {
	commtest.Run(t, 1, func(ctx context.Context, world *comm.Comm) error {
		m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "x", Size: 1})
		if err != nil {
			return err
		}
		var names []string
		for name := range nn.NewBlock(nn.NewInit(m, 1), nn.BlockConfig{Width: 4, Heads: 2, Bias: true}).Params() {
			names = append(names, name)
			if name == "mlp.up.bias" {
				break
			}
		}
		want := []string{"norm1.weight", "attention.q.weight", "attention.q.bias", "attention.k.weight", "attention.k.bias",
			"attention.v.weight", "attention.v.bias", "attention.out.weight", "attention.out.bias", "norm2.weight", "mlp.up.weight", "mlp.up.bias"}
		if !slices.Equal(names, want) {
			return fmt.Errorf("names %q, want %q", names, want)
		}
		n := nn.NewLayerNorm(nn.NewInit(m, 1), 4)
		if y := n.Forward(n.Weight.Cast(tensor.BFloat16)); y.DType() != tensor.BFloat16 {
			return fmt.Errorf("layer norm of bfloat16 is %v", y)
		}
		if len(nn.Tensors(n.Params())) != 2 || n.Forward(n.Weight).Dim(0) != 4 {
			return fmt.Errorf("layer norm %v", n)
		}
		return nil
	})
}
