package loss_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/tensor"
)

// logSoftmax is the rows of x less the logarithms of their sums of exponentials.
func logSoftmax(x []float64, c int) []float64 {
	y := make([]float64, len(x))
	for i := 0; i < len(x); i += c {
		top, sum := slices.Max(x[i:i+c]), 0.0
		for _, v := range x[i : i+c] {
			sum += math.Exp(v - top)
		}
		for j, v := range x[i : i+c] {
			y[i+j] = v - top - math.Log(sum)
		}
	}
	return y
}

// TestNLLLoss: of the logarithms of softmax it is the cross-entropy, and its
// gradient is -w at the target.
func TestNLLLoss(t *testing.T) {
	for name, q := range questions() {
		if q.probs != nil || q.smoothing != 0 || q.z != 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			for _, mesh := range meshes {
				meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
					whole := make([]layout.Placement, len(mesh))
					for _, lp := range meshtest.Combinations(len(mesh), replicate, shard0, shard1, partial) {
						if err := q.checkNLL(ctx, m, lp, whole, whole); err != nil {
							return fmt.Errorf("%v: %w", lp, err)
						}
					}
					return nil
				})
			}
		})
	}
}

// checkNLL runs NLLLoss of the question's logarithms of probabilities in the given
// layouts, in float64.
func (q *question) checkNLL(ctx context.Context, m *dtensor.Mesh, logs, targets, weight []layout.Placement) error {
	gy, g := q.gradient(m)
	want, _ := q.answer(gy)
	x, y := meshtest.Place(m, logSoftmax(q.logits, q.c), []int{q.n, q.c}, logs...), meshtest.Place(m, q.targets, []int{q.n}, targets...)
	grads, events, err := graded(ctx, m, g, want, func() *dtensor.Tensor {
		return loss.NLLLoss(x, y, q.options(m, weight...))
	}, x)
	if err != nil {
		return err
	}
	if err := near("gradient", grads[0].Dense().Full(), q.nllGrad(gy), 1e-11); err != nil {
		return err
	}
	r := ranksOf(m, q.n, logs)
	return r.check(events, "NLLLoss", 8)
}

// nllGrad is the gradient of NLLLoss as a loop.
func (q *question) nllGrad(gy []float64) []float64 {
	grad := make([]float64, q.n*q.c)
	weight := func(y int64) float64 {
		if q.weight == nil {
			return 1
		}
		return q.weight[y]
	}
	denom := 0.0
	for _, y := range q.targets {
		if y != q.ignore {
			denom += weight(y)
		}
	}
	for i, y := range q.targets {
		if y == q.ignore {
			continue
		}
		g := gy[0]
		switch q.reduction {
		case loss.None:
			g = gy[i]
		case loss.Mean:
			g /= denom
		}
		grad[i*q.c+int(y)] = -weight(y) * g
	}
	return grad
}

// TestLinearCrossEntropy compares loss and both gradients with the loops, for
// every placement of hidden and weight.
func TestLinearCrossEntropy(t *testing.T) { eachLinear(t, meshes, "everything", (*linear).check) }

// A linearCheck compares loss and both gradients in the given placements of hidden,
// weight, targets and class weights; shape is that of the positions.
type linearCheck func(l *linear, ctx context.Context, m *dtensor.Mesh, shape []int, hidden, head, targets, weight []layout.Placement) error

// eachLinear checks every placement of hidden and weight: on meshes of several axes for
// the questions whose names begin with many alone.
func eachLinear(t *testing.T, meshes [][]int, many string, check linearCheck) {
	const width = 3
	for name, q := range questions() {
		if q.probs != nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			l := newLinear(q, width, meshtest.Numbers(q.n*width, 11, 2), meshtest.Numbers(q.c*width, 12, 2))
			for _, mesh := range meshes {
				if len(mesh) > 1 && !strings.HasPrefix(name, many) {
					continue // many layouts
				}
				meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
					whole := make([]layout.Placement, len(mesh))
					for _, hp := range meshtest.Combinations(len(mesh), replicate, shard0, shard1, partial) {
						for _, wp := range meshtest.Combinations(len(mesh), replicate, shard0, shard1) {
							if err := check(l, ctx, m, []int{q.n}, hp, wp, whole, whole); err != nil {
								return fmt.Errorf("hidden %v, weight %v: %w", hp, wp, err)
							}
						}
					}
					return nil
				})
			}
		})
	}
}

// TestLinearOfUnevenShardsOfShards has positions that one axis divides in explicit sizes of
// what another left over, where the classes lie along either.
func TestLinearOfUnevenShardsOfShards(t *testing.T) {
	q := &question{n: 6, c: 5, logits: meshtest.Numbers(30, 1, 4), targets: []int64{4, -100, 0, 3, 4, 1}, ignore: -100}
	l := newLinear(q, 3, meshtest.Numbers(18, 11, 2), meshtest.Numbers(15, 12, 2))
	meshtest.On(t, []int{2, 2}, func(ctx context.Context, m *dtensor.Mesh) error {
		whole := m.Every(replicate)
		for _, head := range meshtest.Combinations(2, replicate, shard0, shard1) {
			if err := l.check(ctx, m, []int{6}, []layout.Placement{shard0, layout.ShardSizes(0, 1, 2)}, head, whole, whole); err != nil {
				return fmt.Errorf("weight %v: %w", head, err)
			}
		}
		return nil
	})
}

// TestLinearOfSequences has hidden [B, T, H] sharded by B or by T.
func TestLinearOfSequences(t *testing.T) {
	const b, n, width, classes = 2, 3, 4, 5
	hidden, weight := meshtest.Numbers(b*n*width, 1, 1), meshtest.Numbers(classes*width, 2, 1)
	targets := []int64{0, 4, -100, 2, 2, 1}
	for _, mesh := range [][]int{{1}, {2}, {2, 2}} {
		meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			whole := make([]layout.Placement, len(mesh))
			run := func(h, w, y *dtensor.Tensor, f func(h, w, y *dtensor.Tensor) *dtensor.Tensor) ([][]float64, error) {
				l, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return f(h, w, y) }, h, w)
				if err != nil {
					return nil, err
				}
				return [][]float64{values(l), values(grads[0].Dense()), values(grads[1].Dense())}, nil
			}
			y := meshtest.Place(m, targets, []int{b, n}, whole...)
			want, err := run(meshtest.Place(m, hidden, []int{b, n, width}, whole...), meshtest.Place(m, weight, []int{classes, width}, whole...), y,
				func(h, w, y *dtensor.Tensor) *dtensor.Tensor {
					return loss.CrossEntropy(h.Reshape(b*n, width).Linear(w, nil), y.Reshape(b*n), loss.Options{})
				})
			if err != nil {
				return err
			}
			for _, hp := range meshtest.Combinations(len(mesh), replicate, shard0, shard1, shard2) {
				for _, wp := range meshtest.Combinations(len(mesh), replicate, shard0) {
					got, err := run(meshtest.Place(m, hidden, []int{b, n, width}, hp...), meshtest.Place(m, weight, []int{classes, width}, wp...), y,
						func(h, w, y *dtensor.Tensor) *dtensor.Tensor {
							return loss.LinearCrossEntropy(h, w, y, loss.Options{})
						})
					if err != nil {
						return fmt.Errorf("hidden %v, weight %v: %w", hp, wp, err)
					}
					for k := range want {
						for i := range want[k] {
							if math.Abs(got[k][i]-want[k][i]) > 1e-12 {
								return fmt.Errorf("hidden %v, weight %v: result %d element %d is %v, want %v", hp, wp, k, i, got[k][i], want[k][i])
							}
						}
					}
				}
			}
			return nil
		})
	}
}

// TestOutsideTheMesh: a rank that is in no position makes the same calls and
// takes part in nothing.
func TestOutsideTheMesh(t *testing.T) {
	for _, xp := range []layout.Placement{replicate, shard0, shard1} {
		commtest.Run(t, 3, func(ctx context.Context, world *comm.Comm) error {
			m, err := dtensor.NewMeshOf(world, []int{2, 0}, dtensor.Axis{Name: "a", Size: 2})
			if err != nil {
				return err
			}
			q := questions()["plain mean"]
			x, y := meshtest.Place(m, q.logits, []int{5, 7}, xp), meshtest.Place(m, q.targets, []int{5}, replicate)
			w := meshtest.Place(m, meshtest.Numbers(21, 1, 1), []int{3, 7}, xp)
			var probs *dtensor.Tensor
			l, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
				probs = loss.CrossEntropy(x, x.Detach(), loss.Options{Reduction: loss.None})
				return loss.CrossEntropy(x, y, loss.Options{}).
					Add(loss.NLLLoss(x, y, loss.Options{})).
					Add(loss.LinearCrossEntropy(x, w, meshtest.Place(m, []int64{0, 1, 2, 0, 1}, []int{5}, replicate), loss.Options{}))
			}, x, w)
			if err != nil {
				return fmt.Errorf("rank %d: %w", world.Rank(), err)
			}
			if probs.Dim(0) != 5 || len(l.Shape()) != 0 {
				return fmt.Errorf("rank %d: shapes %v and %v", world.Rank(), probs.Shape(), l.Shape())
			}
			return nil
		})
	}
}

// Probabilities that are none are refused on every rank, with their place, however they lie.
func TestProbabilitiesOutOfRange(t *testing.T) {
	for _, wrong := range []float64{-0.5, 1.5, math.NaN()} {
		for _, place := range []layout.Placement{layout.Replicate(), layout.Shard(0), layout.Shard(1)} {
			meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
				p := meshtest.Place(m, []float64{0, 1, 0.5, wrong}, []int{2, 2}, place)
				err := dtensor.Try(ctx, m, func() {
					loss.BinaryCrossEntropyOfProbabilities(p, dtensor.Zeros(m, tensor.Float64, []int{2, 2}, place), loss.Sum).Full()
				})
				if want := fmt.Sprintf("the probability at [1 1] is %v; give", wrong); err == nil || !strings.Contains(err.Error(), want) {
					return fmt.Errorf("%v: got %v, want %q in it", place, err, want)
				}
				return nil
			})
		}
	}
}
