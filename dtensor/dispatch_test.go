package dtensor_test

import (
	"context"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// A small operator allocates the result, its local tensor and, until the pool
// has one to hand out again, its block; and a closure if it is recorded.
func TestDispatchAllocations(t *testing.T) {
	onMesh(t, []int{1}, func(ctx context.Context, m *dtensor.Mesh) error {
		x := dtensor.Full(m, tensor.Float32, 1, []int{8, 8}, layout.Shard(0))
		return dtensor.Try(ctx, m, func() {
			x.Add(x)
			if n := testing.AllocsPerRun(100, func() { x.Add(x) }); n > 3 {
				failf("an addition allocates %v times, want at most 3", n)
			}
			_, _, err := dtensor.ValueAndGrad(ctx, func() T {
				if n := testing.AllocsPerRun(100, func() { x.Add(x) }); n > 4 {
					failf("a recorded addition allocates %v times, want at most 4", n)
				}
				return x.Sum(nil, false)
			}, x)
			if err != nil {
				failf("%w", err)
			}
		})
	})
}

// BenchmarkAdd is the cost of one addition of [8, 8] S(0) tensors, arithmetic
// included.
func BenchmarkAdd(b *testing.B) {
	for _, c := range []struct {
		name     string
		recorded bool
	}{{"plain", false}, {"recorded", true}} {
		b.Run(c.name, func(b *testing.B) {
			onMesh(b, []int{1}, func(ctx context.Context, m *dtensor.Mesh) error {
				x := dtensor.Full(m, tensor.Float32, 1, []int{8, 8}, layout.Shard(0))
				chain := func() T {
					y := x
					for range 1000 {
						y = y.Add(x)
					}
					return y
				}
				b.ReportAllocs()
				for i := 0; i < b.N; i += 1000 {
					var err error
					if c.recorded {
						_, _, err = dtensor.ValueAndGrad(ctx, func() T { return chain().Sum(nil, false) }, x)
					} else {
						err = dtensor.Try(ctx, m, func() { chain() })
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}
