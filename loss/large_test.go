package loss_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/tensor"
)

// TestLargeLogits has float32 logits near ±1e4 with smoothing or probabilities, in
// every layout: what is lost of lse and of Σ w·x would not cancel.
func TestLargeLogits(t *testing.T) {
	const n, c = 3, 6
	logits := []float64{
		1e4, 1e4, 1e4 - 1, 1e4 - 0.5, 1e4, 1e4 - 2,
		-1e4, -1e4 + 1, -1e4, -1e4, -1e4 + 0.25, -1e4,
		-1e4, 1e4, -1e4, -1e4, -1e4, -1e4,
	}
	probs := []float64{0.5, 0, 0.25, 0.25, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0}
	weight := []float64{0.5, 2, 0.25, 1, 0.125, 3}
	one := &question{n: 2, c: 1, logits: []float64{1e4, -1e4}, targets: []int64{0, 0}, smoothing: 0.25}
	for name, q := range map[string]*question{
		"one class":           one,
		"smooth":              {n: n, c: c, logits: logits, targets: []int64{0, 4, 1}, smoothing: 0.25},
		"only smoothing":      {n: n, c: c, logits: logits, targets: []int64{0, 4, 1}, smoothing: 1},
		"smooth, weighted":    {n: n, c: c, logits: logits, targets: []int64{2, 4, 1}, smoothing: 0.25, weight: weight},
		"probabilities":       {n: n, c: c, logits: logits, probs: probs},
		"smooth, weighted, p": {n: n, c: c, logits: logits, probs: probs, smoothing: 0.25, weight: weight},
	} {
		q.ignore, q.reduction = -100, loss.None
		want, _ := q.answer(meshtest.Numbers(q.n, 5, 1))
		small := func(x []float64) []float32 {
			y := make([]float32, len(x))
			for i, v := range x {
				y[i] = float32(v)
			}
			return y
		}
		for _, mesh := range [][]int{{1}, {2}, {4}, {2, 2}} {
			meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				whole := make([]layout.Placement, len(mesh))
				for _, lp := range meshtest.Combinations(len(mesh), replicate, shard0, shard1) {
					x := meshtest.Place(m, small(q.logits), []int{q.n, q.c}, lp...)
					var y *dtensor.Tensor
					if q.probs != nil {
						y = meshtest.Place(m, small(q.probs), []int{q.n, q.c}, whole...)
					} else {
						y = meshtest.Place(m, q.targets, []int{q.n}, whole...)
					}
					o := loss.Options{Reduction: q.reduction, LabelSmoothing: q.smoothing}
					if q.weight != nil {
						o.Weight = meshtest.Place(m, small(q.weight), []int{q.c}, whole...)
					}
					if err := meshtest.Near("loss", loss.CrossEntropy(x, y, o).Full(), want, 5e-7, 1e-9); err != nil {
						return fmt.Errorf("%s, logits %v: %w", name, lp, err)
					}
				}
				return nil
			})
		}
	}
}

// TestGradientOfProbabilitiesOfLargeLogits is lse - x, in float32.
func TestGradientOfProbabilitiesOfLargeLogits(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		x := meshtest.Place(m, []float32{1e4, 1e4, 0, -1e4}, []int{1, 4}, shard1)
		p := meshtest.Place(m, []float32{1, 0, 0, 0}, []int{1, 4}, shard1)
		_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return loss.CrossEntropy(x, p, loss.Options{}) }, p)
		if err != nil {
			return err
		}
		const ln2 = 0.6931471805599453
		return meshtest.Near("gradient", grads[0].Dense().Full(), []float64{ln2, ln2, 1e4 + ln2, 2e4 + ln2}, 2e-7, 0)
	})
}

// TestNaNLogits has a NaN among logits: the loss is NaN, wherever it lies and whatever
// the maximum of the numbers is.
func TestNaNLogits(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, logits := range [][]float64{{-inf, -inf, -inf, nan}, {nan, -inf, 1, 2}, {1, 2, nan, -inf}} {
		for _, ranks := range []int{1, 2, 3} {
			meshtest.On(t, []int{ranks}, func(ctx context.Context, m *dtensor.Mesh) error {
				for _, dt := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16} {
					x := dtensor.Distribute(m, tensor.Cast(tensor.FromSlice(m.Device(), logits, 1, 4), dt), shard1)
					y := dtensor.Distribute(m, tensor.FromSlice(m.Device(), []int64{2}, 1), replicate)
					if l := loss.CrossEntropy(x, y, loss.Options{}).Local().Item(); !math.IsNaN(l) {
						return fmt.Errorf("%v: the loss of %v is %v", dt, logits, l)
					}
				}
				return nil
			})
		}
	}
}
