package main

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
)

// With SameBits a step of a small model, from a lookup to the loss and the clipped
// gradients, has the bits of one rank on every mesh.
func TestStepsHaveTheSameBits(t *testing.T) {
	var want []float64
	for _, shape := range [][]int{{1, 1}, {2, 1}, {1, 2}, {3, 1}, {1, 3}, {2, 2}} {
		var got []float64
		meshtest.On(t, shape, func(ctx context.Context, m *dtensor.Mesh) error {
			m.SetSameBits(true)
			numbers, err := oneStep(ctx, m)
			if err == nil && m.Comm().Rank() == 0 {
				got = numbers
			}
			return err
		})
		if want == nil {
			want = got
		}
		for i := range want {
			if math.Float64bits(got[i]) != math.Float64bits(want[i]) {
				t.Fatalf("mesh %v: number %d is %v, on one rank %v", shape, i, got[i], want[i])
			}
		}
	}
}

// oneStep returns the loss, the norm and the clipped gradients of a model whose batch the
// first axis divides, and whose table and head the second.
func oneStep(ctx context.Context, m *dtensor.Mesh) ([]float64, error) {
	const vocab, width = 13, 8
	R, S := layout.Replicate(), layout.Shard(0)
	key := func(i int) dtensor.Key { return dtensor.Key{Seed: 5, Stream: uint64(i)} }
	table := dtensor.Normal(m, key(0), 0, 1, []int{vocab, width}, R, S)
	gain := dtensor.Normal(m, key(1), 1, 0.1, []int{width}, R, R)
	head := dtensor.Normal(m, key(2), 0, 1, []int{vocab, width}, R, S)
	params := []*dtensor.Tensor{table, gain, head}
	ids := dtensor.Uniform(m, key(3), 0, vocab, []int{6, 5}, R, R).Cast(tensor.Int64).Redistribute(S, R)
	targets := dtensor.Uniform(m, key(4), 0, vocab, []int{6, 5}, R, R).Cast(tensor.Int64).Redistribute(S, R).Flatten(0, 1)
	value, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		h := embedding.Lookup(table, ids, embedding.Options{}).Reduced().RMSNorm(gain, 1e-6).Flatten(0, 1)
		return loss.CrossEntropy(h.Linear(head, nil), targets, loss.Options{}).
			Add(loss.LinearCrossEntropy(h, head, targets, loss.Options{LabelSmoothing: 0.1}))
	}, params...)
	if err != nil {
		return nil, err
	}
	norm, err := optim.ClipGradNorm(ctx, params, grads, 0.5)
	if err != nil {
		return nil, err
	}
	if !(norm > 0.5) {
		return nil, fmt.Errorf("a norm of %v clips nothing", norm)
	}
	numbers := []float64{value.Item(), norm}
	err = dtensor.Try(ctx, m, func() {
		for _, g := range grads {
			dense := g.Dense()
			if rows, ok := g.Rows(); ok {
				dense = rows.Dense()
			}
			numbers = append(numbers, tensor.ToSlice[float64](tensor.Cast(dense.Full(), tensor.Float64))...)
		}
	})
	return numbers, err
}
