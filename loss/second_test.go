package loss_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/tensor"
)

// TestSecondDerivatives compares, for each loss, the gradients that dtensor.Gradients returns with those of ValueAndGrad, and the
// product of the Hessian and v with finite differences of them.
func TestSecondDerivatives(t *testing.T) {
	const n, c, h = 4, 6, 3
	type T = *dtensor.Tensor
	ignored := int64(2)
	for _, mesh := range [][]int{{1}, {2}, {3}, {2, 2}} {
		meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			whole, rows, columns := m.Every(layout.Replicate()), m.Every(layout.Replicate()), m.Every(layout.Replicate())
			rows[0], columns[len(columns)-1] = layout.Shard(0), layout.Shard(1)
			classes := dtensor.Distribute(m, tensor.FromSlice(m.Device(), []int64{5, 0, 2, 3}, n), rows...)
			probs := meshtest.Place(m, meshtest.Numbers(n*c, 2, 1), []int{n, c}, rows...).Softmax(1)
			weight := meshtest.Place(m, []float64{1, 0.5, 2, 0.1, 3, 1}, []int{c}, whole...)
			table := meshtest.Place(m, meshtest.Numbers(c*h, 5, 1), []int{c, h}, columns...)
			cross := func(targets T, o loss.Options) func(x T) T {
				return func(x T) T { return loss.CrossEntropy(x, targets, o).Square().Sum(nil, false) }
			}
			for _, l := range []struct {
				name string
				f    func(x T) T
			}{
				{"CrossEntropy", cross(classes, loss.Options{})},
				{"CrossEntropy with all options", cross(classes, loss.Options{Weight: weight, LabelSmoothing: 0.2, ZLoss: 0.1,
					IgnoreIndex: &ignored})},
				{"CrossEntropy, sum", cross(classes, loss.Options{Weight: weight, Reduction: loss.Sum})},
				{"CrossEntropy, none", cross(classes, loss.Options{IgnoreIndex: &ignored, ZLoss: 1, Reduction: loss.None})},
				{"CrossEntropy, probabilities", cross(probs, loss.Options{Weight: weight, LabelSmoothing: 0.2, ZLoss: 0.1})},
				{"NLLLoss", func(x T) T {
					return loss.NLLLoss(x.Tanh(), classes, loss.Options{Weight: weight, IgnoreIndex: &ignored}).Square()
				}},
				{"BinaryCrossEntropy", func(x T) T { return loss.BinaryCrossEntropy(x, probs, loss.Mean) }},
				{"of probabilities", func(x T) T { return loss.BinaryCrossEntropyOfProbabilities(x.Sigmoid(), probs, loss.Mean) }},
				{"LinearCrossEntropy", func(x T) T { return loss.LinearCrossEntropy(x.Narrow(1, 0, h), table, classes, loss.Options{}) }},
				{"TopK", func(x T) T { values, _ := loss.TopK(x, 2); return values.Tanh().Sum(nil, false) }},
				{"MSE", func(x T) T { return loss.MSE(x.Tanh(), probs, loss.Mean) }},
			} {
				for _, p := range [][]layout.Placement{whole, rows, columns} {
					numbers, v := meshtest.Numbers(n*c, 1, 1), meshtest.Numbers(n*c, 7, 1)
					slope := func(step float64) []float64 { // at numbers + step·v
						moved := make([]float64, len(numbers))
						for i := range moved {
							moved[i] = numbers[i] + step*v[i]
						}
						x := meshtest.Place(m, moved, []int{n, c}, p...)
						_, grads, err := dtensor.ValueAndGrad(ctx, func() T { return l.f(x) }, x)
						if err != nil {
							panic(err)
						}
						return meshtest.Values(grads[0].Dense().Full())
					}
					x, along := meshtest.Place(m, numbers, []int{n, c}, p...), meshtest.Place(m, v, []int{n, c}, whole...)
					var first T
					_, grads, err := dtensor.ValueAndGrad(ctx, func() T {
						first = dtensor.Gradients(func() T { return l.f(x) }, x)[0]
						dtensor.Keep(first)
						return first.Mul(along).Sum(nil, false)
					}, x)
					if err == nil {
						err = meshtest.Near("gradient", first.Full(), slope(0), 1e-9, 1e-12)
					}
					if err == nil {
						up, down := slope(1e-5), slope(-1e-5)
						for i := range up {
							up[i] = (up[i] - down[i]) / 2e-5
						}
						err = meshtest.Near("Hessian times v", grads[0].Dense().Full(), up, 1e-6, 1e-7)
					}
					if err != nil {
						return fmt.Errorf("%s of x %v: %w", l.name, p, err)
					}
				}
			}
			return nil
		})
	}
}
