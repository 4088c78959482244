package dtensor_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// Gradients of parts that overlap, that leave gaps, that lie along two dimensions and that come between others add up.
func TestGradientsOfParts(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		for _, p := range []layout.Placement{layout.Replicate(), layout.Shard(0), layout.Shard(1)} {
			for _, dt := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
				x := dtensor.Full(m, dt, 1, []int{5, 6}, p)
				_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
					y := x.Narrow(1, 4, 1).Sum(nil, false)
					y = y.Add(x.Narrow(0, 1, 2).Scale(2).Sum(nil, false))
					y = y.Add(x.Scale(4).Sum(nil, false))
					y = y.Add(x.Narrow(1, 0, 2).Scale(8).Sum(nil, false))
					y = y.Add(x.Narrow(1, 1, 2).Scale(16).Sum(nil, false))
					return y.Add(x.Narrow(1, 3, 0).Sum(nil, false)).Cast(tensor.Float32)
				}, x)
				if err != nil {
					return err
				}
				var want []float64
				for i := range 5 {
					for _, v := range []float64{12, 28, 20, 4, 5, 4} {
						if i == 1 || i == 2 {
							v += 2
						}
						want = append(want, v)
					}
				}
				if got := meshtest.Values(grads[0].Dense().Full()); !slices.Equal(got, want) {
					return fmt.Errorf("%v, %v: the gradient is %v, want %v", p, dt, got, want)
				}
			}
		}
		return nil
	})
}

// The gradients of parts are written side by side: they take the memory of one gradient, not one of the whole size for each part.
func TestGradientsOfPartsTakeOneGradient(t *testing.T) {
	meshtest.On(t, []int{1}, func(ctx context.Context, m *dtensor.Mesh) error {
		const rows, cols = 64, 1 << 12
		x := dtensor.Zeros(m, tensor.Float32, []int{rows, cols}, layout.Replicate())
		before := m.Device().Stats().Live
		_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			y := dtensor.Zeros(m, tensor.Float32, nil, layout.Replicate())
			for _, part := range x.Chunk(1, 8) {
				y = y.Add(part.Sum(nil, false))
			}
			return y
		}, x)
		if got, most := m.Device().Stats().HighWater-before, 3*rows*cols*4+1<<16; got > most { // the parts, theirs, and all
			return fmt.Errorf("they take %d bytes, want at most %d", got, most)
		}
		return err
	})
}
