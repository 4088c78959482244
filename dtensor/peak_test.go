package dtensor_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// The more ranks a ring has, the less memory each takes: what came round is gone.
func TestRingAttentionMemory(t *testing.T) {
	peak := map[int]int{}
	for _, n := range []int{1, 8} {
		meshtest.On(t, []int{n}, func(ctx context.Context, m *dtensor.Mesh) error {
			q := dtensor.Zeros(m, tensor.Float32, []int{4, 4, 256, 16}, layout.Shard(2))
			before := m.Device().Stats().Live
			_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
				return dtensor.RingAttention(q, q, q, true, "a").Sum(nil, false)
			}, q)
			if m.Coord()[0] == 0 {
				peak[n] = m.Device().Stats().HighWater - before
			}
			return err
		})
	}
	if peak[8] > peak[1]/3 {
		t.Errorf("it takes %d bytes on each of 8 ranks, %d on one", peak[8], peak[1])
	}
}

// A sum of gradients is reduced over the ranks once, and takes the memory of one gradient for any number of parts.
func TestAccumulateKeepsOneSum(t *testing.T) {
	for _, dt := range []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16} {
		var peak int
		for _, parts := range []int{2, 7} {
			meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
				const size = 1 << 16
				w := dtensor.Zeros(m, dt, []int{size}, layout.Replicate())
				x := dtensor.Full(m, dt, 1, []int{2, size}, layout.Shard(0))
				recorder := m.Comm().Record()
				_, grads, err := dtensor.Accumulate(ctx, parts, func(int) *dtensor.Tensor {
					return x.Mul(w).Cast(tensor.Float32).Sum(nil, false)
				}, w)
				recorder.Stop()
				if err != nil {
					return err
				}
				if got := grads[0].Dense().Full(); meshtest.Values(got)[0] != float64(2*parts) {
					return fmt.Errorf("%v: the gradient is %v, want %d", dt, got, 2*parts)
				}
				if calls := recorder.Stats().Calls(); calls != "AllReduce×2" {
					return fmt.Errorf("%v: the calls are %s: %v", dt, calls, recorder.Stats().Causes)
				}
				if m.Coord()[0] > 0 {
					return nil
				}
				if high := m.Device().Stats().HighWater; parts == 2 {
					peak = high
				} else if high > peak+1<<10 {
					return fmt.Errorf("%v: %d parts take %d bytes, 2 take %d", dt, parts, high, peak)
				}
				return nil
			})
		}
	}
}
