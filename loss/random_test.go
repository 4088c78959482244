package loss_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/loss"
)

// TestRandomCrossEntropies compares random losses, with explicit sizes of shards,
// some of them empty, with the loops: go test -run RandomCross -cases 10000 -seed 2.
func TestRandomCrossEntropies(t *testing.T) {
	meshtest.Random(func(rng *rand.Rand, i int) {
		mesh := meshes[rng.IntN(len(meshes))]
		q := &question{n: 1 + rng.IntN(9), c: 1 + rng.IntN(20), ignore: -100, reduction: loss.Reduction(rng.IntN(3))}
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
			for _, v := range meshtest.Numbers(q.n*q.c, float64(i+2), 1) {
				q.probs = append(q.probs, v*v)
			}
		}
		for range q.n {
			y := int64(rng.IntN(q.c))
			if rng.IntN(5) == 0 {
				y = q.ignore
			}
			q.targets = append(q.targets, y)
		}
		logits, targets := make([]layout.Placement, len(mesh)), make([]layout.Placement, len(mesh))
		for axis, n := range mesh {
			logits[axis] = meshtest.SomeShard(rng, n, axis == 0, q.n, q.c)
			targets[axis] = meshtest.SomeShard(rng, n, axis == 0, q.n)
		}
		meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			if err := q.check(ctx, m, logits, targets, make([]layout.Placement, len(mesh))); err != nil {
				return fmt.Errorf("case %d: mesh %v, logits %v, targets %v, %+v: %w", i, mesh, logits, targets, q, err)
			}
			return nil
		})
	})
}
