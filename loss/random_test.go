package loss_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/tensor"
)

// someQuestion returns a random question with targets that are classes.
func someQuestion(rng *rand.Rand, i int) *question {
	q := &question{n: rng.IntN(10), c: 1 + rng.IntN(20), ignore: -100, reduction: loss.Reduction(rng.IntN(3))}
	q.logits = meshtest.Numbers(q.n*q.c, float64(i), []float64{1, 30, 1e4}[rng.IntN(3)])
	if rng.IntN(3) == 0 {
		q.weight = meshtest.Numbers(q.c, float64(i+1), 1)
		for c := range q.weight {
			q.weight[c] = q.weight[c]*q.weight[c] + 0.01
		}
	}
	if rng.IntN(3) == 0 {
		q.smoothing = rng.Float64()
	}
	if rng.IntN(3) == 0 {
		q.z = rng.Float64() / 100
	}
	if rng.IntN(4) == 0 {
		q.ignore = int64(rng.IntN(q.c))
	}
	for range q.n {
		y := int64(rng.IntN(q.c))
		if rng.IntN(5) == 0 {
			y = q.ignore
		}
		q.targets = append(q.targets, y)
	}
	return q
}

// someLoss returns a question, of probabilities now and then, and where its parts are.
func someLoss(rng *rand.Rand, i int) (mesh []int, q *question, logits, targets, weight []layout.Placement) {
	mesh, q = meshtest.SomeMesh(rng), someQuestion(rng, i)
	if rng.IntN(4) == 0 {
		for _, v := range meshtest.Numbers(q.n*q.c, float64(i+2), 1) {
			q.probs = append(q.probs, v*v)
		}
	}
	logits = meshtest.OrPartial(rng, meshtest.SomePlaces(rng, mesh, q.n, q.c))
	targets, weight = meshtest.SomePlaces(rng, mesh, q.n), meshtest.SomePlaces(rng, mesh, q.c)
	return mesh, q, logits, targets, weight
}

// TestRandomCrossEntropies compares random losses, with explicit sizes of shards,
// some of them empty, with the loops, and counts what they communicate:
// go test -run RandomCross -cases 10000 -seed 2.
func TestRandomCrossEntropies(t *testing.T) {
	meshtest.Random(t, func(rng *rand.Rand, i int) {
		mesh, q, logits, targets, weight := someLoss(rng, i)
		meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			if err := q.check(ctx, m, logits, targets, weight); err != nil {
				return fmt.Errorf("case %d: mesh %v, logits %v, targets %v, weight %v, %+v: %w", i, mesh, logits, targets, weight, q, err)
			}
			if q.probs != nil || q.smoothing != 0 || q.z != 0 {
				return nil
			}
			if err := q.checkNLL(ctx, m, logits, targets, weight); err != nil {
				return fmt.Errorf("case %d: NLLLoss: mesh %v, logits %v, targets %v, weight %v, %+v: %w", i, mesh, logits, targets, weight, q, err)
			}
			return nil
		})
	})
}

// TestRandomLinearCrossEntropies does the same for the loss that is fused with the
// product, of hidden [N, H] and [B, T, H].
func TestRandomLinearCrossEntropies(t *testing.T) { randomLinears(t, (*linear).check) }

func randomLinears(t *testing.T, check linearCheck) {
	meshtest.Random(t, func(rng *rand.Rand, i int) {
		mesh, q, width := meshtest.SomeMesh(rng), someQuestion(rng, i), 1+rng.IntN(6)
		shape := []int{q.n}
		if rng.IntN(2) == 0 && q.n%2 == 0 {
			shape = []int{2, q.n / 2}
		}
		l := newLinear(q, width, meshtest.Numbers(q.n*width, float64(i), 3), meshtest.Numbers(q.c*width, float64(i+1), 3))
		hidden := meshtest.OrPartial(rng, meshtest.SomePlaces(rng, mesh, append(slices.Clone(shape), width)...))
		head := meshtest.OrPartial(rng, meshtest.SomePlaces(rng, mesh, q.c, width))
		targets, weight := meshtest.SomePlaces(rng, mesh, shape...), meshtest.SomePlaces(rng, mesh, q.c)
		meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			if err := check(l, ctx, m, shape, hidden, head, targets, weight); err != nil {
				return fmt.Errorf("case %d: mesh %v, %v positions, hidden %v, head %v, targets %v, %+v: %w", i, mesh, shape, hidden, head, targets, q,
					err)
			}
			return nil
		})
	})
}

// TestRandomRankings compares TopK, its gradient and Argmax of random logits with
// the loops: equal ones, infinite ones and NaN among them, in shards that are
// empty or have fewer than k.
func TestRandomRankings(t *testing.T) {
	some := []float64{math.Inf(-1), -1, 0, 1, math.Inf(1), math.NaN()}
	meshtest.Random(t, func(rng *rand.Rand, i int) {
		mesh, n, c := meshtest.SomeMesh(rng), rng.IntN(7), 1+rng.IntN(15)
		flat := rng.IntN(5) == 0
		shape := []int{n, c}
		if flat {
			n, shape = 1, []int{c}
		}
		logits := meshtest.Numbers(n*c, float64(i), 2)
		few := rng.IntN(2) == 0 // other numbers
		for j, v := range logits {
			if logits[j] = float64(float32(v)); few || rng.IntN(5) == 0 {
				logits[j] = some[rng.IntN(len(some))]
			}
		}
		r := newRanking(n, c, 1+rng.IntN(c), logits)
		places := meshtest.OrPartial(rng, meshtest.SomePlaces(rng, mesh, shape...))
		meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			for _, dt := range []tensor.DType{tensor.Float32, tensor.Float64} {
				if err := r.check(ctx, m, dt, shape, places); err != nil {
					return fmt.Errorf("case %d: mesh %v, the %d largest of %v, %v %v %v: %w", i, mesh, r.k, logits, dt, shape, places, err)
				}
			}
			return nil
		})
	})
}
