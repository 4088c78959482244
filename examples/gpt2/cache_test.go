package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
)

// BenchmarkGenerate measures the mean time of a token of a text of 256, with a cache and
// without.
func BenchmarkGenerate(b *testing.B) {
	for _, recompute := range []bool{false, true} {
		b.Run(fmt.Sprintf("no-cache=%v", recompute), func(b *testing.B) {
			commtest.Run(b, 1, func(ctx context.Context, world *comm.Comm) error {
				mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: 1}, dtensor.Axis{Name: "tp", Size: 1})
				if err != nil {
					return err
				}
				c, err := parseConfig([]byte(`{"model_type": "gpt2", "vocab_size": 300, "n_positions": 257, "n_embd": 256, "n_head": 4, "n_layer": 2}`))
				if err != nil {
					return err
				}
				m, err := newModel(ctx, mesh, c, false)
				if err != nil {
					return err
				}
				const n = 255
				for b.Loop() {
					if _, err := m.generate(ctx, []int64{1}, n, sampling{recompute: recompute}); err != nil {
						return err
					}
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(n*b.N), "µs/token")
				return nil
			})
		})
	}
}
