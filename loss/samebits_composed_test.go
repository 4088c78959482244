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

// With SameBits losses that are compositions of operators, and their gradients, have the bits of one rank, however a batch is divided.
func TestComposedLossesHaveTheSameBits(t *testing.T) {
	type T = *dtensor.Tensor
	const mean = loss.Mean
	signs := func(y T) T { return y.Sign() }
	for name, f := range map[string]func(x, y T) T{
		"MSE":           func(x, y T) T { return loss.MSE(x, y, mean) },
		"L1":            func(x, y T) T { return loss.L1(x, y, mean) },
		"Huber":         func(x, y T) T { return loss.Huber(x, y, 0.7, mean) },
		"KL":            func(x, y T) T { return loss.KL(x, y.Softmax(1), loss.KLOptions{}) },
		"BCE":           func(x, y T) T { return loss.BinaryCrossEntropy(x, y.Sigmoid(), mean) },
		"PoissonNLL":    func(x, y T) T { return loss.PoissonNLL(x, y.Square(), loss.PoissonNLLOptions{}) },
		"GaussianNLL":   func(x, y T) T { return loss.GaussianNLL(x, y, y.Square().AddScalar(1), loss.GaussianNLLOptions{}) },
		"SoftMargin":    func(x, y T) T { return loss.SoftMargin(x, signs(y), mean) },
		"Hinge":         func(x, y T) T { return loss.HingeEmbedding(x, signs(y), 1, mean) },
		"MarginRanking": func(x, y T) T { return loss.MarginRanking(x, y, signs(y), 0.5, mean) },
		"TripletMargin": func(x, y T) T { return loss.TripletMargin(x, y, x.Mul(y), 1, mean) },
		"InfoNCE":       func(x, y T) T { return loss.InfoNCE(x, y, loss.InfoNCEOptions{}) },
	} {
		t.Run(name, func(t *testing.T) {
			var want []uint64
			for _, shape := range [][]int{{1}, {2}, {3}, {4}, {5}, {2, 2}, {3, 2}} {
				meshtest.On(t, shape, func(ctx context.Context, m *dtensor.Mesh) error {
					m.SetSameBits(true)
					for _, first := range []layout.Placement{layout.Replicate(), layout.Shard(0)} {
						place := m.Every(layout.Replicate())
						place[0] = first
						got, err := composedBits(ctx, m, place, f)
						if err != nil {
							return err
						}
						if want == nil {
							want = got
						}
						if i := differ(got, want); i >= 0 {
							return fmt.Errorf("mesh %v, %v: number %d is %v, want %v", m, place, i,
								math.Float64frombits(got[i]), math.Float64frombits(want[i]))
						}
					}
					return nil
				})
			}
		})
	}
}

// composedBits returns the bits of a loss of two tensors [61, 7] and of its gradients.
func composedBits(ctx context.Context, m *dtensor.Mesh, place []layout.Placement, f func(x, y *dtensor.Tensor) *dtensor.Tensor) (
	all []uint64, err error) {
	add := func(t *dtensor.Tensor) {
		for _, v := range tensor.ToSlice[float64](tensor.Cast(t.Full(), tensor.Float64)) {
			all = append(all, math.Float64bits(v))
		}
	}
	err = dtensor.Try(ctx, m, func() {
		var params []*dtensor.Tensor
		for seed := range 2 {
			numbers := tensor.FromSlice(m.Device(), meshtest.Numbers(61*7, float64(seed+1), 3), 61, 7)
			whole := dtensor.Distribute(m, numbers, m.Every(layout.Replicate())...)
			params = append(params, whole.Cast(tensor.Float32).Redistribute(place...))
		}
		value, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return f(params[0], params[1]) }, params...)
		if err != nil {
			panic(err)
		}
		add(value)
		for _, g := range grads {
			add(g.Dense())
		}
	})
	return all, err
}
