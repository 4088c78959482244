package embedding_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
)

// BenchmarkLookup measures lookup, reduction and gradient over two ranks that
// are goroutines of one process; bench/embedding measures processes.
func BenchmarkLookup(b *testing.B) {
	for _, size := range [][3]int{{50304, 768, 4096}, {131072, 256, 8192}, {1 << 20, 64, 65536}} {
		for _, c := range []struct {
			name            string
			weight, ids, to layout.Placement
		}{{"row-wise to R", shard0, replicate, replicate}, {"row-wise to S", shard0, replicate, shard0}, {"ids sharded", shard0, shard0,
			shard0}} {
			b.Run(fmt.Sprintf("%v/%s", size, c.name), func(b *testing.B) {
				commtest.Run(b, 2, func(ctx context.Context, world *comm.Comm) error {
					m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "tp", Size: 2})
					if err != nil {
						return err
					}
					w := dtensor.Normal(m, dtensor.Key{}, 0, 1, []int{size[0], size[1]}, shard0)
					ids := make([]int64, size[2])
					for i := range ids {
						ids[i] = int64(uint64(i)*0x9e3779b97f4a7c15>>33) % int64(size[0])
					}
					x := meshtest.Place(m, ids, []int{size[2]}, c.ids)
					gy := dtensor.Normal(m, dtensor.Key{Seed: 1}, 0, 1, []int{size[2], size[1]}, c.to)
					if err := comm.Barrier(ctx, world); err != nil {
						return err
					}
					if world.Rank() == 0 {
						b.ResetTimer()
					}
					for range b.N {
						var out *dtensor.Tensor
						_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
							out = embedding.Lookup(w, x, embedding.Options{}).Redistribute(c.to)
							return out.Mul(gy).Sum(nil, false)
						}, w)
						if err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
	}
}
