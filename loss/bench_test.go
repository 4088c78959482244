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
