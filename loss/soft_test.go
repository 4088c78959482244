package loss_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/loss"
)

// TestGradientOfProbabilities compares the gradient of class probabilities with
// the loops, for every placement of logits and targets, [N, C] and [N, C, 2].
func TestGradientOfProbabilities(t *testing.T) {
	const n, c, eps = 3, 5, 0.2
	for _, inner := range []int{1, 2} {
		shape := []int{n, c, inner}[:1+inner]
		x, p := meshtest.Numbers(n*c*inner, 1, 3), meshtest.Numbers(n*c*inner, 2, 1)
		w := []float64{1, 0.5, 2, 0.1, 3}
		want := make([]float64, len(x))
		for i := range n {
			for k := range inner {
				at := func(class int) int { return (i*c+class)*inner + k }
				sum := 0.0
				for class := range c {
					sum += math.Exp(x[at(class)])
				}
				for class := range c {
					want[at(class)] = (1 - eps) * w[class] * (math.Log(sum) - x[at(class)]) / float64(n*inner)
				}
			}
		}
		for _, mesh := range [][]int{{1}, {2}, {4}, {2, 2}} {
			meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				for _, xp := range meshtest.Combinations(len(mesh), replicate, shard0, shard1) {
					for _, yp := range meshtest.Combinations(len(mesh), replicate, shard1) {
						logits, targets := meshtest.Place(m, x, shape, xp...), meshtest.Place(m, p, shape, yp...)
						o := loss.Options{LabelSmoothing: eps, Weight: meshtest.Place(m, w, []int{c}, meshtest.Combinations(len(mesh), replicate)[0]...)}
						_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return loss.CrossEntropy(logits, targets, o) }, targets)
						if err == nil {
							err = near("gradient", grads[0].Dense().Full(), want, 1e-11)
						}
						if err != nil {
							return fmt.Errorf("logits %v, targets %v: %w", xp, yp, err)
						}
					}
				}
				return nil
			})
		}
	}
}
