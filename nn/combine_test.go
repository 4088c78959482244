package nn_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/internal/testenv"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/tensor"
)

// A way is how a mesh of three axes divides blocks and a mixture of experts.
type way struct {
	axes              [3]string
	x                 []layout.Placement // of what the blocks get
	tokens            []layout.Placement // of what the experts get: they take tokens in order
	shard, experts    string             // axes
	context, sequence bool
	calls             string         // of a step on 8 ranks, of each kind
	causes            map[string]int // those of some causes, which begin so
}

var (
	s0, s1, whole = layout.Shard(0), layout.Shard(1), layout.Replicate()

	ways = []way{
		// FSDP and experts over the data axis, long sequences, heads.
		{axes: [3]string{"dp", "cp", "tp"}, x: []layout.Placement{s0, s1, whole}, tokens: []layout.Placement{s0, whole, whole},
			shard: "dp", experts: "dp", context: true, calls: "AllReduce×16, AllGather×2, AllGatherV×38, ReduceScatterV×18, AllToAllV×26",
			causes: map[string]int{
				"Redistribute: dp: S(0)": 16, "Redistribute: dp: S(1)": 20, // 18 parameters are gathered, twice
				"gradient of parameter: dp": 18, // and their gradients scattered
				"Reduced: tp":               8,  // attention and MLP of 2 blocks, twice
				"RMSNormGrad: tp":           4,
				"RingAttention":             20, // for each block 4 forward, twice, and 2 backward
				"Lookup: rows":              2, "Lookup: gradients of rows": 2,
			}},
		// FSDP over one of two data axes, heads, positions between them.
		{axes: [3]string{"dp", "fsdp", "tp"}, x: []layout.Placement{s0, s0, s1}, tokens: []layout.Placement{s0, s0, whole},
			shard: "fsdp", experts: "fsdp", sequence: true,
			calls: "AllReduce×5, AllGather×2, AllGatherV×50, ReduceScatterV×30, AllToAllV×6, Split×2",
			causes: map[string]int{
				"Redistribute: fsdp: S(0)": 16, "Redistribute: fsdp: S(1)": 20, "gradient of parameter: fsdp": 18,
				"ValueAndGrad: parameter gradients": 3, // summed over dp
				"Redistribute: tp: P(sum)":          8, // instead of the all-reduces: scattered,
				"Redistribute: tp: S(1)":            9, // and gathered before; and for the experts
				"gradient of RMSNorm: tp":           4, "gradient of Linear: tp": 4,
				"Lookup: rows": 2, "Lookup: gradients of rows": 2,
			}},
	}
)

// Blocks whose parameters, positions, heads and experts are all divided, and recomputed,
// have the loss and gradients of one rank, and make as many calls as they should.
func TestCombinations(t *testing.T) {
	for _, w := range ways {
		var want map[string][]float32
		for _, size := range testenv.Fewer([][3]int{{1, 1, 1}, {2, 2, 2}, {1, 4, 2}, {2, 1, 2}, {1, 2, 1}}, 0, 1) {
			commtest.Run(t, size[0]*size[1]*size[2], func(ctx context.Context, world *comm.Comm) error {
				mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: w.axes[0], Size: size[0]}, dtensor.Axis{Name: w.axes[1], Size: size[1]},
					dtensor.Axis{Name: w.axes[2], Size: size[2]})
				if err != nil {
					return err
				}
				got, stats, events, err := w.step(ctx, mesh)
				if err != nil {
					return err
				}
				if world.Size() == 1 {
					want = got
				}
				for name, v := range inOrder(want) {
					if !near(got[name], v) {
						return fmt.Errorf("mesh %v: %s is %v, want %v", mesh, name, got[name], v)
					}
				}
				if size != [3]int{2, 2, 2} {
					return nil
				}
				if calls := stats.Calls(); calls != w.calls {
					return fmt.Errorf("mesh %v: a step makes the calls %s, want %s: %v", mesh, calls, w.calls, stats.Causes)
				}
				for begin, want := range inOrder(w.causes) {
					n, _ := meshtest.Calls(events, begin)
					if n != want {
						return fmt.Errorf("mesh %v: %d calls for %q, want %d: %v", mesh, n, begin, want, stats.Causes)
					}
				}
				return nil
			})
		}
	}
}

// step returns the loss and the gradients of two blocks and a mixture of experts.
func (w *way) step(ctx context.Context, mesh *dtensor.Mesh) (map[string][]float32, comm.Stats, []comm.Event, error) {
	init := nn.NewInit(mesh, 1)
	rope := nn.NewRope(init, nn.RopeConfig{HeadDim: 4, Positions: 16})
	x := wave(mesh, 1, []int{4, 8, 16}, w.x...)
	params := []*dtensor.Tensor{x}
	var blocks []*nn.Block
	for range 2 {
		c := nn.BlockConfig{Width: 16, Heads: 4, KVHeads: 2, Gated: true, Rope: rope, TensorAxis: "tp", Sequence: w.sequence}
		if w.context {
			c.ContextAxis = "cp"
		}
		b := nn.NewBlock(init, c)
		nn.Shard(b, w.shard)
		blocks, params = append(blocks, b), append(params, nn.Tensors(b.Params())...)
	}
	experts := nn.NewMoE(init, nn.MoEConfig{Width: 16, Hidden: 8, Experts: 4, Axis: w.experts})
	params = append(params, nn.Tensors(experts.Params())...)
	recorder := mesh.Comm().Record()
	value, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		h := x
		for _, b := range blocks {
			h = dtensor.Recompute(b.Forward, h)
		}
		h = h.Redistribute(w.tokens...)
		y, balance := experts.Forward(h)
		return h.Add(y).Square().Mean(nil, false).Add(balance.Scale(0.01))
	}, params...)
	recorder.Stop()
	if err != nil {
		return nil, comm.Stats{}, nil, err
	}
	all := map[string][]float32{"loss": tensor.ToSlice[float32](value.Full())}
	for i, g := range grads {
		all[fmt.Sprint("gradient ", i)] = tensor.ToSlice[float32](g.Dense().Full())
	}
	return all, recorder.Stats(), recorder.Events(), nil
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

// Positions may be few, so that reshapes gather them, and divided over another axis too, with fewer heads of keys than of queries.
func TestContextOfAnyLayout(t *testing.T) {
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		for _, positions := range []int{1, 4} {
			var want []float32
			for _, axis := range []string{"", "dp"} {
				a := nn.NewAttention(nn.NewInit(mesh, 1), nn.AttentionConfig{Width: 8, Heads: 4, KVHeads: 2, ContextAxis: axis})
				x := dtensor.Normal(mesh, dtensor.Key{Seed: 2}, 0, 1, []int{2, positions, 8}, mesh.Every(layout.Replicate())...)
				if axis != "" {
					x = x.Redistribute(layout.Shard(1), layout.Shard(1))
				}
				var got []float32
				_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
					y := a.Forward(x)
					got = tensor.ToSlice[float32](y.Full())
					return y.Square().Mean(nil, false)
				}, nn.Tensors(a.Params())...)
				if err != nil {
					return err
				}
				for _, g := range grads {
					got = append(got, tensor.ToSlice[float32](g.Dense().Full())...)
				}
				if want == nil {
					want = got
				}
				for i := range want {
					if math.Abs(float64(got[i]-want[i])) > 1e-6 {
						return fmt.Errorf("%d positions: element %d of the result and the gradients is %v, want %v", positions, i, got[i], want[i])
					}
				}
			}
		}
		return nil
	})
}
