package train_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
)

// A piped is how a test's blocks are divided: meshes of dp·tp ranks, and stages on each. Full
// divides their parameters over dp and their positions over tp too.
type piped struct {
	meshes, each, dp, tp, parts int
	full                        bool
}

// stream is how what blocks hand on is divided.
func (c *piped) stream() []layout.Placement {
	if c.full {
		return []layout.Placement{layout.Shard(0), layout.Shard(1)}
	}
	return batch()
}

// A lane is a pipeline of blocks, one or more a stage, over the ranks of a world.
type lane struct {
	*dtensor.Pipeline
	params []*dtensor.Tensor // of all stages
	stages []dtensor.Stage
}

const pipedBlocks = 4

// newLane makes the pipeline; change, if not nil, may change its stages.
func newLane(ctx context.Context, world *comm.Comm, c piped, change func(stages []dtensor.Stage)) (*lane, error) {
	l := &lane{}
	var meshes []*dtensor.Mesh
	for m := range c.meshes {
		ranks := make([]int, c.dp*c.tp)
		for i := range ranks {
			ranks[i] = m*len(ranks) + i
		}
		mesh, err := dtensor.NewMeshOf(world, ranks, dtensor.Axis{Name: "dp", Size: c.dp}, dtensor.Axis{Name: "tp", Size: c.tp})
		if err != nil {
			return nil, err
		}
		meshes = append(meshes, mesh)
	}
	n := c.meshes * c.each
	shape := []int{2, 4, 16}
	for i := range n {
		mesh := meshes[i%c.meshes]
		s := dtensor.Stage{Mesh: mesh}
		if i > 0 {
			s.Shape, s.DType, s.Placements = shape, tensor.Float32, c.stream()
		}
		var blocks []*nn.Block
		for range pipedBlocks / n {
			b := nn.NewBlock(nn.NewInit(mesh, 1), nn.BlockConfig{Width: 16, Heads: 4, Bias: true, TensorAxis: "tp", Sequence: c.full})
			for _, p := range nn.Tensors(b.Params()) {
				own := wave(mesh, float64(len(l.params)), p.Shape(), p.Placements()...)
				tensor.Copy(p.Local(), tensor.MulScalar(own.Local(), 0.3))
				l.params = append(l.params, p)
			}
			if c.full {
				nn.Shard(b, "dp")
			}
			blocks = append(blocks, b)
		}
		s.Forward = func(part int, h *dtensor.Tensor) *dtensor.Tensor {
			if i == 0 {
				h = wave(mesh, float64(part), shape, c.stream()...)
			}
			for _, b := range blocks {
				h = dtensor.Recompute(b.Forward, h)
			}
			if i == n-1 {
				h = h.Square().Mean(nil, false).Scale(1 / float64(c.parts))
			}
			return h
		}
		l.stages = append(l.stages, s)
	}
	if change != nil {
		change(l.stages)
	}
	var err error
	l.Pipeline, err = dtensor.NewPipeline(ctx, world, l.stages...)
	return l, err
}

// train makes two steps, and returns the loss, gradients and norm of the second and the
// parameters after it, of the stages that this rank has.
func (l *lane) train(ctx context.Context, parts int) (map[string][]float32, error) {
	all := map[string][]float32{}
	optimizer := optim.NewAdamW(l.params, optim.AdamWConfig{})
	for range 2 {
		value, grads, err := l.ValueAndGrad(ctx, parts, l.params...)
		if err != nil {
			return nil, err
		}
		for i, g := range grads {
			if l.params[i].Mesh().Inside() {
				all[fmt.Sprint("gradient ", i)] = tensor.ToSlice[float32](g.Dense().Full())
			}
		}
		norm, err := optim.ClipGradNorm(ctx, l.params, grads, 0.01)
		if err != nil {
			return nil, err
		}
		if err := optimizer.Step(grads, 0.01); err != nil {
			return nil, err
		}
		all["loss"], all["norm"] = []float32{float32(value)}, []float32{float32(norm)}
	}
	for i, p := range l.params {
		if p.Mesh().Inside() {
			all[fmt.Sprint("parameter ", i)] = tensor.ToSlice[float32](p.Full())
		}
	}
	return all, nil
}

// Blocks in a pipeline, their heads and batch divided too, train as on one rank: 1F1B and
// interleaved stages, and on 8 ranks with three to five ways to divide.
func TestPipeline(t *testing.T) {
	var want map[string][]float32
	for _, c := range []piped{{1, 1, 1, 1, 4, false}, {2, 1, 1, 1, 4, false}, {4, 1, 1, 1, 4, false}, {2, 2, 1, 1, 4, false},
		{1, 2, 1, 1, 4, false}, {2, 1, 2, 2, 4, false}, {2, 2, 1, 2, 4, false}, {2, 1, 2, 2, 4, true}, {2, 2, 2, 2, 4, true}} {
		commtest.Run(t, c.meshes*c.dp*c.tp, func(ctx context.Context, world *comm.Comm) error {
			l, err := newLane(ctx, world, c, nil)
			if err != nil {
				return err
			}
			recorder := world.Record()
			got, err := l.train(ctx, c.parts)
			recorder.Stop()
			if err != nil {
				return err
			}
			if world.Size() == 1 && c.each == 1 {
				want = got
			}
			if len(got) < len(want)/c.meshes {
				return fmt.Errorf("%+v: %d results", c, len(got))
			}
			for name, v := range got {
				if !near(v, want[name]) {
					return fmt.Errorf("%+v: %s is %v, want %v", c, name, v, want[name])
				}
			}
			// A part crosses each boundary of stages once each way: this rank is at one end.
			crossings := 0
			for i := 1; i < len(l.stages) && c.meshes > 1; i++ {
				for _, s := range l.stages[i-1 : i+1] {
					if s.Mesh.Inside() {
						crossings++
					}
				}
			}
			for _, cause := range []string{"Pipeline: activations", "Pipeline: gradients"} {
				if n, _ := meshtest.Calls(recorder.Events(), cause); n != 2*c.parts*crossings {
					return fmt.Errorf("%+v: %d calls for %q, want %d: %v", c, n, cause, 2*c.parts*crossings, recorder.Stats().Causes)
				}
			}
			if !c.full {
				return nil
			}
			// In 2 steps, for each part: 10 parameters of a block are gathered twice, and their gradients scattered.
			const divided = 14 - 4 // tp divides the only dimension of 4 biases
			gathers, _ := meshtest.Calls(recorder.Events(), "Redistribute: dp: S(")
			scatters, _ := meshtest.Calls(recorder.Events(), "gradient of parameter: dp")
			if want := 2 * c.parts * pipedBlocks / c.meshes * divided; gathers != 2*want || scatters != want {
				return fmt.Errorf("%+v: %d gathers, want %d, and %d scatters, want %d: %v", c, gathers, 2*want, scatters, want, recorder.Stats().Causes)
			}
			return nil
		})
	}
}

// With SameBits a pipeline has the bits of one rank's, in any number of stages and meshes, and refuses stages with losses of their own.
func TestPipelineHasTheSameBits(t *testing.T) {
	var want map[string][]float32
	for _, c := range []piped{{1, 1, 1, 1, 4, false}, {2, 1, 1, 1, 4, false}, {4, 1, 1, 1, 4, false}, {2, 2, 1, 1, 4, false},
		{1, 2, 1, 1, 4, false}, {2, 1, 2, 2, 4, false}, {2, 2, 1, 2, 4, false}, {1, 1, 3, 1, 4, false}, {2, 1, 2, 2, 4, true}} {
		commtest.Run(t, c.meshes*c.dp*c.tp, func(ctx context.Context, world *comm.Comm) error {
			l, err := newLane(ctx, world, c, func(stages []dtensor.Stage) {
				for _, s := range stages {
					s.Mesh.SetSameBits(true)
				}
			})
			if err != nil {
				return err
			}
			got, err := l.train(ctx, c.parts)
			if err != nil {
				return err
			}
			if world.Size() == 1 && c.each == 1 {
				want = got
			}
			for name, v := range got {
				if !slices.Equal(v, want[name]) {
					return fmt.Errorf("%+v: %s is %x, on one rank %x", c, name, v, want[name])
				}
			}
			return nil
		})
	}
}

// An error on one stage is that of all ranks: nobody waits for what does not come.
func TestPipelineError(t *testing.T) {
	wrong := errors.New("part 2 is bad")
	for name, fail := range map[string]func(s []dtensor.Stage){
		"part 2 is bad": func(s []dtensor.Stage) {
			forward := s[1].Forward
			s[1].Forward = func(part int, h *dtensor.Tensor) *dtensor.Tensor {
				if part == 2 {
					dtensor.Check(wrong)
				}
				return forward(part, h)
			}
		},
		"stage 0 returned": func(s []dtensor.Stage) { s[1].Shape = []int{2, 4, 15} },
		"returned [2] R": func(s []dtensor.Stage) { // a loss of two elements
			forward := s[0].Forward
			s[0].Forward, s[0].ForwardWithLoss = nil, func(part int, h *dtensor.Tensor) (y, loss *dtensor.Tensor) {
				return forward(part, h), dtensor.Zeros(s[0].Mesh, tensor.Float32, []int{2}, s[0].Mesh.Every(layout.Replicate())...)
			}
		},
		"stage 0 returned float32 [2, 4, 16] R,R on another mesh": func(s []dtensor.Stage) {
			s[0].Forward = func(int, *dtensor.Tensor) *dtensor.Tensor {
				return dtensor.Zeros(s[1].Mesh, tensor.Float32, s[1].Shape, s[1].Mesh.Every(layout.Replicate())...)
			}
		},
		"stage 1 returned float32 [] R,R on another mesh": func(s []dtensor.Stage) {
			s[1].Forward = func(int, *dtensor.Tensor) *dtensor.Tensor {
				return dtensor.Zeros(s[0].Mesh, tensor.Float32, nil, s[0].Mesh.Every(layout.Replicate())...)
			}
		},
		"returned nil": func(s []dtensor.Stage) {
			s[1].Forward = func(int, *dtensor.Tensor) *dtensor.Tensor { return nil }
		},
	} {
		errs := commtest.Ranks(t.Context(), 2, func(ctx context.Context, world *comm.Comm) error {
			l, err := newLane(ctx, world, piped{meshes: 2, each: 1, dp: 1, tp: 1}, fail)
			if err != nil {
				return err
			}
			_, _, err = l.ValueAndGrad(ctx, 6, l.params...)
			return err
		})
		for r, err := range errs {
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: rank %d: %v", name, r, err)
			}
		}
	}
}

func TestPipelineRefusals(t *testing.T) {
	commtest.Run(t, 4, func(ctx context.Context, world *comm.Comm) error {
		if _, err := dtensor.NewPipeline(ctx, world); err == nil || !strings.Contains(err.Error(), "no stages; give at least one") {
			return fmt.Errorf("no stages: %v", err)
		}
		changes := map[string]func(s []dtensor.Stage){
			"give one of them": func(s []dtensor.Stage) {
				s[1].ForwardWithLoss = func(int, *dtensor.Tensor) (y, loss *dtensor.Tensor) { return nil, nil }
			},
			"no Mesh":              func(s []dtensor.Stage) { s[1].Mesh = nil },
			"in turn":              func(s []dtensor.Stage) { slices.Reverse(s[2:]) },
			"floating-point":       func(s []dtensor.Stage) { s[1].DType = tensor.Int64 },
			"what stage 3 gets":    func(s []dtensor.Stage) { s[3].Placements = batch()[:1] },
			"Shard or Replicate":   func(s []dtensor.Stage) { s[1].Placements = s[1].Mesh.Every(layout.Partial(layout.Sum)) },
			"same axes":            func(s []dtensor.Stage) { s[1].Mesh = part(world, []int{1}, 1, 1) },
			"in the meshes of two": func(s []dtensor.Stage) { s[1].Mesh = part(world, []int{1, 2}, 1, 2) },
		}
		for _, problem := range slices.Sorted(maps.Keys(changes)) { // all ranks in one order
			change := changes[problem]
			_, err := newLane(ctx, world, piped{meshes: 2, each: 2, dp: 1, tp: 2, parts: 2}, change)
			if err == nil || !strings.HasPrefix(err.Error(), "dtensor: NewPipeline: ") || !strings.Contains(err.Error(), problem) {
				return fmt.Errorf("%s: %v", problem, err)
			}
		}
		l, err := newLane(ctx, world, piped{meshes: 2, each: 2, dp: 1, tp: 2, parts: 2}, nil)
		if err != nil {
			return err
		}
		for parts, problem := range map[int]string{0: "at least 1", 3: "no multiple of 2"} { // no rank waits for another
			if _, _, err := l.ValueAndGrad(ctx, parts, l.params...); err == nil || !strings.Contains(err.Error(), problem) {
				return fmt.Errorf("%d parts: %v", parts, err)
			}
		}
		_, _, err = l.ValueAndGrad(ctx, 2, l.params[0], nil)
		if err == nil || !strings.Contains(err.Error(), "parameter 1 is nil; give a tensor") {
			return fmt.Errorf("a nil parameter: %v", err)
		}
		_, _, err = l.ValueAndGrad(ctx, 2, l.params...)
		return err
	})
}

// part is a mesh of some ranks.
func part(world *comm.Comm, ranks []int, dp, tp int) *dtensor.Mesh {
	m, err := dtensor.NewMeshOf(world, ranks, dtensor.Axis{Name: "dp", Size: dp}, dtensor.Axis{Name: "tp", Size: tp})
	if err != nil {
		panic(err)
	}
	return m
}

// batch divides a batch over the data axis.
func batch() []layout.Placement { return []layout.Placement{layout.Shard(0), layout.Replicate()} }

// wave is a tensor of a sine's values.
func wave(mesh *dtensor.Mesh, seed float64, shape []int, p ...layout.Placement) *dtensor.Tensor {
	n := 1
	for _, s := range shape {
		n *= s
	}
	list := make([]float32, n)
	for i := range list {
		list[i] = float32(math.Sin(0.7*float64(i) + seed))
	}
	return dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), list, shape...), p...)
}

// near reports whether two results differ by rounding alone.
func near(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(a, b float32) bool { return math.Abs(float64(a-b)) <= 1e-5*(1+math.Abs(float64(b))) })
}

// Mixtures of experts in stages before the last one train as on one rank: their load-balancing losses are in the reported loss and
// in the gradients, and cost no message between stages. With same bits the gradients have the bits of one rank without a pipeline, and
// the losses those of a pipeline on one rank.
func TestPipelineWithExperts(t *testing.T) {
	for _, same := range []bool{false, true} {
		t.Run(fmt.Sprint("same bits ", same), func(t *testing.T) { trainExperts(t, same) })
	}
}

func trainExperts(t *testing.T, same bool) {
	const parts, stages = 4, 4
	shape := []int{4, 4, 16}
	var want map[string][]float32
	for _, c := range []struct{ meshes, dp int }{{0, 1}, {1, 1}, {2, 1}, {4, 1}, {2, 2}, {4, 2}} { // 0: no pipeline
		commtest.Run(t, max(1, c.meshes)*c.dp, func(ctx context.Context, world *comm.Comm) error {
			meshes := make([]*dtensor.Mesh, max(1, c.meshes))
			for m := range meshes {
				meshes[m] = part(world, []int{c.dp * m, c.dp*m + c.dp - 1}[:c.dp], c.dp, 1)
				meshes[m].SetSameBits(same)
			}
			var params []*dtensor.Tensor
			var layers []func(x *dtensor.Tensor) (y, loss *dtensor.Tensor)
			for i := range stages - 1 {
				m := nn.NewMoE(nn.NewInit(meshes[i%len(meshes)], 1), nn.MoEConfig{Width: 16, Hidden: 8, Experts: 4, Axis: "dp"})
				for _, p := range nn.Tensors(m.Params()) {
					own := wave(p.Mesh(), float64(len(params)), p.Shape(), p.Placements()...)
					tensor.Copy(p.Local(), tensor.MulScalar(own.Local(), 0.3))
					params = append(params, p)
				}
				layers = append(layers, func(x *dtensor.Tensor) (y, loss *dtensor.Tensor) {
					y, balance := m.Forward(x)
					return x.Add(y), balance.Scale(0.5 / parts)
				})
			}
			cost := func(x *dtensor.Tensor) *dtensor.Tensor { return x.Square().Mean(nil, false).Scale(1.0 / parts) }
			input := func(i int) *dtensor.Tensor { return wave(meshes[0], float64(i), shape, batch()...) }
			var list []dtensor.Stage
			for i := range stages {
				s := dtensor.Stage{Mesh: meshes[i%len(meshes)], Shape: shape, DType: tensor.Float32, Placements: batch()}
				if s.ForwardWithLoss = func(part int, x *dtensor.Tensor) (y, loss *dtensor.Tensor) {
					if i == 0 {
						x = input(part)
					}
					return layers[i](x)
				}; i == stages-1 {
					s.Forward, s.ForwardWithLoss = func(_ int, x *dtensor.Tensor) *dtensor.Tensor { return cost(x) }, nil
				}
				list = append(list, s)
			}
			var loss float64
			var grads []dtensor.Grad
			if c.meshes == 0 {
				value, all, err := dtensor.Accumulate(ctx, parts, func(i int) *dtensor.Tensor {
					x, sum := input(i), dtensor.Zeros(meshes[0], tensor.Float32, nil, meshes[0].Every(layout.Replicate())...)
					for _, layer := range layers {
						y, own := layer(x)
						x, sum = y, sum.Add(own)
					}
					return cost(x).Add(sum)
				}, params...)
				if err != nil {
					return err
				}
				loss, grads = value.Item(), all
			} else {
				p, err := dtensor.NewPipeline(ctx, world, list...)
				if err != nil {
					return err
				}
				recorder := world.Record()
				loss, grads, err = p.ValueAndGrad(ctx, parts, params...)
				recorder.Stop()
				if err != nil {
					return err
				}
				crossings := 0
				for i := 1; i < stages && c.meshes > 1; i++ {
					for _, s := range list[i-1 : i+1] {
						if s.Mesh.Inside() {
							crossings++
						}
					}
				}
				for _, cause := range []string{"Pipeline: activations", "Pipeline: gradients"} {
					if n, _ := meshtest.Calls(recorder.Events(), cause); n != parts*crossings {
						return fmt.Errorf("%+v: %d calls for %q, want %d", c, n, cause, parts*crossings)
					}
				}
			}
			got := map[string][]float32{"loss": {float32(loss)}, "digits": {float32(loss - float64(float32(loss)))}}
			for i, g := range grads {
				if params[i].Mesh().Inside() {
					got[fmt.Sprint("gradient ", i)] = tensor.ToSlice[float32](g.Dense().Full())
				}
			}
			switch {
			case c.meshes == 0:
				want = got
			case c.meshes*c.dp == 1 && same:
				want["loss"], want["digits"] = got["loss"], got["digits"]
			}
			for name, v := range got {
				if !near(v, want[name]) || same && !slices.Equal(v, want[name]) {
					return fmt.Errorf("%+v: %s is %v, want %v", c, name, v, want[name])
				}
			}
			return nil
		})
	}
}
