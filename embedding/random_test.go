package embedding_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
)

// TestRandomLookups compares random lookups, with explicit sizes of shards, some
// of them empty, with the loops: go test -run RandomLookups -cases 10000 -seed 2.
func TestRandomLookups(t *testing.T) {
	meshtest.Random(t, func(rng *rand.Rand, i int) {
		mesh := meshes[rng.IntN(len(meshes))]
		s := size{1 + rng.IntN(20), 1 + rng.IntN(6), []int{rng.IntN(9)}}
		if rng.IntN(2) == 0 {
			s.ids = append(s.ids, 1+rng.IntN(4))
		}
		weight, ids, to := make([]layout.Placement, len(mesh)), make([]layout.Placement, len(mesh)), make([]layout.Placement, len(mesh))
		for axis, n := range mesh {
			weight[axis] = meshtest.SomeShard(rng, n, axis == 0, s.rows, s.width)
			ids[axis] = meshtest.SomeShard(rng, n, axis == 0, s.ids...)
			to[axis] = meshtest.SomeShard(rng, n, axis == 0, s.ids...)
		}
		o := embedding.Options{ScaleGradByFreq: rng.IntN(2) == 0}
		if rng.IntN(2) == 0 {
			o.PaddingIdx = new(-1 - rng.IntN(s.rows))
		}
		meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			if err := checkLookup(ctx, m, s, weight, ids, o); err != nil {
				return fmt.Errorf("case %d: mesh %v, %v, weight %v, ids %v, %+v: %w", i, mesh, s, weight, ids, o, err)
			}
			if err := checkDirect(ctx, m, s, weight, ids, to, o); err != nil {
				return fmt.Errorf("case %d: mesh %v, %v, weight %v, ids %v, to %v, %+v: %w", i, mesh, s, weight, ids, to, o, err)
			}
			return nil
		})
	})
}
