package loss

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// TestRanksOfOtherLogitsDisagree has ranks compute losses of logits of other shapes, whose calls have as many elements.
func TestRanksOfOtherLogitsDisagree(t *testing.T) {
	full := func(m *dtensor.Mesh, p layout.Placement, shape ...int) *dtensor.Tensor {
		return dtensor.Full(m, tensor.Float32, 1, shape, p)
	}
	targets := func(m *dtensor.Mesh, n int) *dtensor.Tensor {
		return dtensor.Full(m, tensor.Int64, 1, []int{n}, layout.Replicate())
	}
	for name, f := range map[string]func(m *dtensor.Mesh, n int) *dtensor.Tensor{
		"positions": func(m *dtensor.Mesh, n int) *dtensor.Tensor {
			return CrossEntropy(full(m, layout.Shard(0), n, 4), targets(m, n), Options{})
		},
		"classes": func(m *dtensor.Mesh, n int) *dtensor.Tensor {
			return CrossEntropy(full(m, layout.Shard(1), 4, n), targets(m, 4), Options{})
		},
		"fused": func(m *dtensor.Mesh, n int) *dtensor.Tensor {
			return LinearCrossEntropy(full(m, layout.Replicate(), 4, 8), full(m, layout.Shard(0), n, 8), targets(m, 4), Options{})
		},
		"nll": func(m *dtensor.Mesh, n int) *dtensor.Tensor {
			return NLLLoss(full(m, layout.Shard(1), 4, n), targets(m, 4), Options{})
		},
		"regression": func(m *dtensor.Mesh, n int) *dtensor.Tensor {
			return MSE(full(m, layout.Shard(0), n), full(m, layout.Shard(0), n), Mean)
		},
	} {
		for ranks, same := range map[int]bool{2: true, 3: false} {
			t.Run(fmt.Sprintf("%s on %d ranks, same bits %v", name, ranks, same), func(t *testing.T) {
				for _, other := range []int{8, 9} {
					commtest.Run(t, ranks, func(ctx context.Context, world *comm.Comm) error {
						m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: ranks})
						if err != nil {
							return err
						}
						m.SetSameBits(same)
						n := 8
						if world.Rank() == 1 {
							n = other
						}
						err = dtensor.Try(ctx, m, func() { f(m, n).Full() })
						if differs := other != 8; errors.Is(err, comm.ErrMismatch) != differs || !differs && err != nil {
							return fmt.Errorf("8 and %d: %v", other, err)
						}
						return nil
					})
				}
			})
		}
	}
}
