package loss_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/internal/testenv"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/tensor"
)

// single are numbers as float32.
func single(x []float64) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = float32(v)
	}
	return y
}

// halves are numbers rounded to bfloat16.
func halves(x []float64) []float64 {
	cpu := tensor.NewCPU(nil)
	return meshtest.Values(tensor.Cast(tensor.FromSlice(cpu, x, len(x)), tensor.BFloat16))
}

// lossOf are the losses that take logits.
var lossOf = map[string]func(logits, targets *dtensor.Tensor, o loss.Options) *dtensor.Tensor{
	"CrossEntropy": loss.CrossEntropy, "NLLLoss": loss.NLLLoss,
}

// single runs the question on logits of shape and type dt, everything else being
// float32, and returns the whole loss, the gradients of logits and probabilities, and
// what was communicated.
func (q *question) single(ctx context.Context, m *dtensor.Mesh, op string, dt tensor.DType, shape []int, logits, targets,
	weight []layout.Placement) (l *tensor.Tensor, grads []*dtensor.Tensor, calls string, err error) {
	whole := make([]layout.Placement, len(logits))
	o := loss.Options{IgnoreIndex: &q.ignore, Reduction: q.reduction, LabelSmoothing: q.smoothing, ZLoss: q.z}
	if q.weight != nil {
		o.Weight = meshtest.Place(m, single(q.weight), []int{q.c}, weight...)
	}
	x := meshtest.Place(m, single(q.logits), shape, logits...)
	if x, err = dtensor.FromLocal(m, tensor.Cast(x.Local(), dt), shape, logits...); err != nil {
		return nil, nil, "", err
	}
	params := []*dtensor.Tensor{x}
	var y *dtensor.Tensor
	if q.probs != nil {
		y = meshtest.Place(m, single(q.probs), shape, targets...)
		params = append(params, y)
	} else {
		y = meshtest.Place(m, q.targets, slices.Delete(slices.Clone(shape), min(1, len(shape)-1), min(2, len(shape))), targets...)
	}
	record := m.Comm().Record()
	_, all, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		out := lossOf[op](x, y, o)
		full := out.Detach().Redistribute(whole...)
		dtensor.Keep(full)
		l = full.Full()
		gy := meshtest.Numbers(out.Numel(), 5, 1)
		return out.Mul(meshtest.Place(m, single(gy), out.Shape(), whole...)).Sum(nil, false)
	}, params...)
	for _, e := range record.Stop() {
		if strings.HasPrefix(e.Cause, op+": ") {
			calls += fmt.Sprintln(e.Kind, e.Bytes, e.Cause)
		}
	}
	for _, g := range all {
		grads = append(grads, g.Dense())
	}
	return l, grads, calls, err
}

// checkHalf compares the loss of bfloat16 logits, its gradients and what it
// communicates with those of the same logits as float32, in the same layout: all have
// the same bits, the gradient of the logits when it is rounded.
func (q *question) checkHalf(ctx context.Context, m *dtensor.Mesh, op string, shape []int, logits, targets,
	weight []layout.Placement) error {
	h := *q
	h.logits = halves(q.logits)
	l, grads, calls, err := h.single(ctx, m, op, tensor.BFloat16, shape, logits, targets, weight)
	if err != nil {
		return err
	}
	want, wantGrads, wantCalls, err := h.single(ctx, m, op, tensor.Float32, shape, logits, targets, weight)
	if err != nil {
		return err
	}
	if l.DType() != tensor.Float32 || grads[0].DType() != tensor.BFloat16 {
		return fmt.Errorf("the loss is %v, the gradient %v", l, grads[0])
	}
	if calls != wantCalls {
		return fmt.Errorf("communicates\n%s, for float32\n%s", calls, wantCalls)
	}
	if err := meshtest.Near("loss", l, meshtest.Values(want), 0, 0); err != nil {
		return err
	}
	for i, g := range grads {
		if g.Layout() != wantGrads[i].Layout() {
			return fmt.Errorf("gradient %d is %v, of float32 %v", i, g, wantGrads[i])
		}
		rounded := tensor.Cast(wantGrads[i].Full(), g.DType())
		if err := meshtest.Near(fmt.Sprint("gradient ", i), g.Full(), meshtest.Values(rounded), 0, 0); err != nil {
			return err
		}
	}
	return nil
}

// TestBFloat16EveryLayout holds that bfloat16 logits are those of float32 in every
// layout, for [N, C] and [1, C, N].
func TestBFloat16EveryLayout(t *testing.T) {
	meshes := testenv.Fewer([][]int{{1}, {2}, {3}, {2, 2}}, 0, 2)
	for name, q := range questions() {
		t.Run(name, func(t *testing.T) {
			for _, mesh := range meshes {
				meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
					whole := make([]layout.Placement, len(mesh))
					for i, lp := range meshtest.Combinations(len(mesh), replicate, shard0, shard1, partial) {
						for _, shape := range [][]int{{q.n, q.c}, {1, q.c, q.n}}[:2-i*len(mesh)%2] {
							for _, op := range q.ops() {
								if err := q.checkHalf(ctx, m, op, shape, lp, whole, whole); err != nil {
									return fmt.Errorf("%s: logits %v %v: %w", op, shape, lp, err)
								}
							}
						}
					}
					return nil
				})
			}
		})
	}
}

// ops are the losses that can be asked the question.
func (q *question) ops() []string {
	if q.probs == nil && q.smoothing == 0 && q.z == 0 {
		return []string{"CrossEntropy", "NLLLoss"}
	}
	return []string{"CrossEntropy"}
}

// TestRandomBFloat16CrossEntropies does so for random questions and layouts, and
// compares the loss with the loops: go test -run RandomBFloat16 -cases 10000 -seed 2.
func TestRandomBFloat16CrossEntropies(t *testing.T) {
	meshtest.Random(t, func(rng *rand.Rand, i int) {
		mesh, q, logits, targets, weight := someLoss(rng, i)
		meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			for _, op := range q.ops() {
				if err := q.checkHalf(ctx, m, op, []int{q.n, q.c}, logits, targets, weight); err != nil {
					return fmt.Errorf("case %d: %s: mesh %v, logits %v, targets %v, weight %v, %+v: %w", i, op, mesh, logits, targets, weight, q, err)
				}
			}
			h := *q
			h.logits, h.z = halves(q.logits), 0
			want, _ := h.answer(make([]float64, h.n+1))
			l, _, _, err := h.single(ctx, m, "CrossEntropy", tensor.BFloat16, []int{q.n, q.c}, logits, targets, weight)
			if err == nil {
				most := 1.0
				for _, v := range h.logits {
					most = max(most, math.Abs(v))
				}
				err = meshtest.Near("loss", l, want, 1e-5, 1e-6*most)
			}
			if err != nil {
				return fmt.Errorf("case %d: mesh %v, logits %v, %+v: %w", i, mesh, logits, q, err)
			}
			return nil
		})
	})
}

// What is not taken says what to do.
func TestBFloat16Refusals(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		wide := meshtest.Place(m, single(meshtest.Numbers(12, 1, 1)), []int{4, 3}, shard1)
		x, y := wide.Cast(tensor.BFloat16), meshtest.Place(m, []int64{0, 1, 2, 0}, []int{4}, replicate)
		weight := meshtest.Place(m, single([]float64{1, 2, 3}), []int{3}, replicate).Cast(tensor.Float64)
		for _, c := range []struct {
			want string
			f    func()
		}{
			{"float16 [4, 3] S(1) on (a=2) are not float32, float64 or bfloat16; Cast them",
				func() { loss.CrossEntropy(wide.Cast(tensor.Float16), y, loss.Options{}) }},
			{"not float32, float64 or bfloat16; Cast them", func() { loss.NLLLoss(wide.Cast(tensor.Float16), y, loss.Options{}) }},
			{"probabilities, but not float32 as logits bfloat16", func() { loss.CrossEntropy(x, wide.Cast(tensor.Float64), loss.Options{}) }},
			{"give one float32 for each of the 3 classes", func() { loss.CrossEntropy(x, y, loss.Options{Weight: weight}) }},
			{"neither int64 or int32 nor float32 probabilities; Cast them", func() { loss.CrossEntropy(x, y.Cast(tensor.Int8), loss.Options{}) }},
			{"not float32, float64 or bfloat16; Cast them", func() { loss.TopK(wide.Cast(tensor.Float16), 1) }},
			{"Cast the targets to float32", func() { loss.BinaryCrossEntropy(x, x.Cast(tensor.Float64), loss.Mean) }},
		} {
			if err := dtensor.Try(ctx, m, c.f); err == nil || !strings.Contains(err.Error(), c.want) {
				return fmt.Errorf("got %v, want an error with %q", err, c.want)
			}
		}
		return comm.Barrier(ctx, m.Comm())
	})
}

// TestBFloat16Probabilities compares the loss and the gradients for probabilities and weights of bfloat16 with those of the same numbers
// in float32: the loss is the same, the gradient of the probabilities is rounded once.
func TestBFloat16Probabilities(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		for _, place := range meshtest.Combinations(1, replicate, shard0, shard1) {
			x := meshtest.Place(m, single(meshtest.Numbers(15, 1, 3)), []int{5, 3}, place...).Cast(tensor.BFloat16)
			p := meshtest.Place(m, single(meshtest.Numbers(15, 2, 1)), []int{5, 3}, shard0).Cast(tensor.BFloat16)
			weight := meshtest.Place(m, single([]float64{1, 0.3, 2}), []int{3}, replicate).Cast(tensor.BFloat16)
			step := func(dt tensor.DType) (float64, []*tensor.Tensor, error) {
				o := loss.Options{LabelSmoothing: 0.1, Weight: weight.Cast(dt)}
				probs := p.Cast(dt)
				value, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return loss.CrossEntropy(x, probs, o) }, x, probs)
				if err != nil {
					return 0, nil, err
				}
				return value.Item(), []*tensor.Tensor{grads[0].Dense().Full(), tensor.Cast(grads[1].Dense().Full(), tensor.BFloat16)}, nil
			}
			got, gotGrads, err := step(tensor.BFloat16)
			if err != nil {
				return err
			}
			want, wantGrads, err := step(tensor.Float32)
			if err != nil {
				return err
			}
			if got != want {
				return fmt.Errorf("logits %v: the loss is %v, want %v", place, got, want)
			}
			for i, g := range gotGrads {
				if a, b := tensor.ToSlice[tensor.BF16](g), tensor.ToSlice[tensor.BF16](wantGrads[i]); !slices.Equal(a, b) {
					return fmt.Errorf("logits %v: gradient %d is %v, want %v", place, i, a, b)
				}
			}
		}
		return nil
	})
}
