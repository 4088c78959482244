package loss_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/tensor"
)

// A rank that computes one of the products of LinearCrossEntropy wrongly is found by the next one, and an element that is wrong alone is
// named; right products are never reported. Positions are computed in one tile, or in several that add up the gradient of the weight.
func TestSampledProducts(t *testing.T) {
	const positions, width, classes = 8, 7, 1024
	for _, c := range []struct {
		ranks     int
		dt        tensor.DType
		workspace int
		faulty    int // negative: none
		only      int // see meshtest.Faulty
		inputs    bool
		steps     int
	}{
		{2, tensor.Float32, 0, -1, 0, false, 100}, {3, tensor.Float32, 1 << 14, -1, 0, false, 50},
		{4, tensor.BFloat16, 1 << 14, -1, 0, false, 30}, {2, tensor.Float64, 1 << 14, -1, 0, false, 30},
		{2, tensor.Float32, 1 << 14, 1, -1, false, 30}, {3, tensor.BFloat16, 1 << 14, 2, -1, false, 30}, {3, tensor.Float32, 0, 0, -1, true, 20},
		{2, tensor.Float32, 0, 1, 50, false, 2000},
	} {
		ops := map[string]int{}
		for rank, err := range meshtest.OnFaulty(t, []int{c.ranks}, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh,
			d *meshtest.Faulty) error {
			R, S := layout.Replicate(), layout.Shard(0)
			hidden := dtensor.Normal(m, dtensor.Key{Stream: 1}, 0, 1, []int{positions, width}, R).Cast(c.dt)
			weight := dtensor.Normal(m, dtensor.Key{Stream: 2}, 0, 1, []int{classes, width}, S).Cast(c.dt)
			targets := dtensor.Uniform(m, dtensor.Key{Stream: 3}, 0, classes, []int{positions}, R).Cast(tensor.Int64)
			named := func(yield func(string, *dtensor.Tensor) bool) { _ = yield("hidden", hidden) && yield("weight", weight) }
			d.Only, d.Inputs = c.only, c.inputs
			found := map[string]int{}
			for step := range c.steps {
				sample := m.SampleProduct(uint64(step), named)
				d.On = world.Rank() == c.faulty
				_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
					return loss.LinearCrossEntropy(hidden, weight, targets, loss.Options{Workspace: c.workspace})
				}, hidden, weight)
				d.On = false
				if err != nil {
					return err
				}
				err = sample.Check(ctx, world)
				wrong, ok := errors.AsType[*dtensor.ProductError](err)
				switch {
				case c.faulty < 0 && err != nil || c.faulty >= 0 && c.only < 0 && !ok:
					return fmt.Errorf("step %d: found %v, want that rank %d is wrong", step, err, c.faulty)
				case !ok:
					continue
				}
				what := strings.TrimPrefix(wrong.Op, "LinearCrossEntropy: ")
				want, of := map[string][]int{ // the faulty one of two ranks has the last half of the classes
					"logits":             {c.only / (classes / 2), classes/2 + c.only%(classes/2)},
					"gradient of hidden": {c.only / width, c.only % width}, "gradient of weight": {classes/2 + c.only/width, c.only % width},
				}[what], map[string]string{"logits": "hidden", "gradient of hidden": "weight", "gradient of weight": "hidden"}[what]
				if c.ranks == 3 && of == "weight" { // whose classes move
					of = ""
				}
				if wrong.Rank != c.faulty || wrong.Tensor != of || !strings.Contains(wrong.Line, "sampleproduct_test.go") ||
					c.only >= 0 && fmt.Sprint(wrong.Index) != fmt.Sprint(want) {
					return fmt.Errorf("step %d: %w, want %v", step, err, want)
				}
				if found[what]++; c.only >= 0 && len(found) == 3 {
					break
				}
			}
			if world.Rank() == 0 {
				ops = found
			}
			return nil
		}) {
			if err != nil {
				t.Errorf("%+v: rank %d: %v", c, rank, err)
			}
		}
		if c.faulty >= 0 && len(ops) != 3 {
			t.Errorf("%+v: of %v products were found", c, ops)
		}
	}
}
