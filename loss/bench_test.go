package loss_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/tensor"
)

// BenchmarkCrossEntropy measures value and gradient over ranks that are
// goroutines of one process; bench/loss measures processes.
func BenchmarkCrossEntropy(b *testing.B) {
	for _, size := range [][2]int{{1024, 32768}, {2048, 50304}} {
		for _, n := range []int{1, 2} {
			b.Run(fmt.Sprintf("%dx%d/ranks=%d", size[0], size[1], n), func(b *testing.B) {
				commtest.Run(b, n, func(ctx context.Context, world *comm.Comm) error {
					m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "tp", Size: n})
					if err != nil {
						return err
					}
					x := dtensor.Normal(m, dtensor.Key{}, 0, 1, size[:], shard1)
					y := dtensor.Zeros(m, tensor.Int64, size[:1], replicate)
					if err := comm.Barrier(ctx, world); err != nil {
						return err
					}
					if world.Rank() == 0 {
						b.ResetTimer()
					}
					for range b.N {
						if _, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return loss.CrossEntropy(x, y, loss.Options{}) }, x); err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
	}
}

// BenchmarkLinearCrossEntropy compares the fused loss with the product and the
// loss, value and gradients, on one rank.
func BenchmarkLinearCrossEntropy(b *testing.B) {
	const n, width, classes = 512, 768, 32768
	fused := func(h, w, y *dtensor.Tensor) *dtensor.Tensor { return loss.LinearCrossEntropy(h, w, y, loss.Options{}) }
	unfused := func(h, w, y *dtensor.Tensor) *dtensor.Tensor {
		return loss.CrossEntropy(h.Linear(w, nil), y, loss.Options{})
	}
	for _, c := range []struct {
		name string
		dt   tensor.DType
		f    func(h, w, y *dtensor.Tensor) *dtensor.Tensor
	}{
		{"fused", tensor.Float32, fused}, {"unfused", tensor.Float32, unfused},
		{"bfloat16/fused", tensor.BFloat16, fused}, {"bfloat16/unfused", tensor.BFloat16, unfused},
	} {
		b.Run(c.name, func(b *testing.B) {
			commtest.Run(b, 1, func(ctx context.Context, world *comm.Comm) error {
				m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "tp", Size: 1})
				if err != nil {
					return err
				}
				h := dtensor.Normal(m, dtensor.Key{}, 0, 1, []int{n, width}, replicate).Cast(c.dt)
				w := dtensor.Normal(m, dtensor.Key{Seed: 1}, 0, 0.02, []int{classes, width}, replicate).Cast(c.dt)
				y := dtensor.Zeros(m, tensor.Int64, []int{n}, replicate)
				b.ResetTimer()
				for range b.N {
					if _, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return c.f(h, w, y) }, h, w); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}
