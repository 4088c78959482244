package embedding_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// TestSecondDerivatives looks up rows in the function of dtensor.Gradients, by the table and by something else alone.
func TestSecondDerivatives(t *testing.T) {
	const rows, dim = 7, 4
	type T = *dtensor.Tensor
	list, padding := []int64{3, 0, 6, 3, 5, 1}, -2
	for _, mesh := range [][]int{{1}, {3}, {2, 2}} {
		meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			r := layout.Replicate()
			whole := m.Every(r)
			numbers := meshtest.Numbers(rows*dim, 1, 1)
			w := meshtest.Place(m, meshtest.Numbers(dim, 2, 1), []int{dim}, whole...)
			for _, by := range []layout.Placement{r, layout.Shard(0), layout.Shard(1)} {
				for _, sharded := range []layout.Placement{r, layout.Shard(0)} {
					for _, o := range []embedding.Options{{}, {PaddingIdx: &padding}, {ScaleGradByFreq: true}} {
						places, split := m.Every(r), m.Every(r)
						places[len(mesh)-1], split[0] = by, sharded
						table := meshtest.Place(m, numbers, []int{rows, dim}, places...)
						ids := dtensor.Distribute(m, tensor.FromSlice(m.Device(), list, len(list)), split...)
						for _, name := range []string{"Lookup", "LookupAs"} {
							look := func() T {
								if name == "Lookup" {
									return embedding.Lookup(table, ids, o)
								}
								return embedding.LookupAs(table, ids, o, split...)
							}
							cubes := func() T { return look().Reduced().Mul(w).PowScalar(3).Sum(nil, false) }
							ofTable, ofW := make([]float64, rows*dim), make([]float64, dim) // the gradients by the sum of the slopes
							mixed := make([]float64, rows*dim)
							for _, id := range list {
								for i := range dim {
									x, w := numbers[int(id)*dim+i], meshtest.Numbers(dim, 2, 1)[i]
									ofW[i] += 6 * x * x * x * w
									if o.PaddingIdx == nil || id != rows-2 {
										ofTable[int(id)*dim+i] += 6 * x * w * w * w
										mixed[int(id)*dim+i] += 9 * x * x * w * w
									}
								}
							}
							slope := func(x T) func() T {
								return func() T { return dtensor.Gradients(cubes, x)[0].Sum(nil, false) }
							}
							var err error
							if !o.ScaleGradByFreq {
								var grads []dtensor.Grad
								if _, grads, err = dtensor.ValueAndGrad(ctx, slope(table), table); err == nil {
									err = meshtest.Near("by the table", grads[0].Dense().Full(), ofTable, 1e-9, 1e-12)
								}
							}
							if err == nil {
								_, grads, failed := dtensor.ValueAndGrad(ctx, slope(w), w, table)
								if err = failed; err == nil {
									err = meshtest.Near("by w", grads[0].Dense().Full(), ofW, 1e-9, 1e-12)
								}
								if err == nil && !o.ScaleGradByFreq {
									err = meshtest.Near("by w, then the table", grads[1].Dense().Full(), mixed, 1e-9, 1e-12)
								}
							}
							if err != nil {
								return fmt.Errorf("%s in %v by %v: %w", name, table, ids, err)
							}
						}
					}
				}
			}
			return nil
		})
	}
}
