package embedding_test

import (
	"context"
	"fmt"
	"strings"
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

// TestBagIsNotDifferentiatedTwice has the refusal of Bag, and the second derivatives of what its documentation gives instead.
func TestBagIsNotDifferentiatedTwice(t *testing.T) {
	const rows, dim = 5, 3
	list := []int64{4, 0, 2, 2, 1, 0}
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		numbers := meshtest.Numbers(rows*dim, 1, 1)
		table := meshtest.Place(m, numbers, []int{rows, dim}, layout.Shard(0))
		ids := dtensor.Distribute(m, tensor.FromSlice(m.Device(), list, 3, 2), layout.Replicate())
		slope := func(bags func() *dtensor.Tensor) (*dtensor.Tensor, []dtensor.Grad, error) {
			return dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
				cubes := func() *dtensor.Tensor { return bags().Reduced().PowScalar(3).Sum(nil, false) }
				return dtensor.Gradients(cubes, table)[0].Sum(nil, false)
			}, table)
		}
		_, _, err := slope(func() *dtensor.Tensor { return embedding.Bag(table, ids, nil, nil, embedding.BagOptions{}) })
		if err == nil || !strings.Contains(err.Error(), "Bag cannot be differentiated twice") {
			return fmt.Errorf("Gradients of Bag: %v", err)
		}
		_, grads, err := slope(func() *dtensor.Tensor {
			return embedding.Lookup(table, ids, embedding.Options{}).Sum([]int{1}, false)
		})
		if err != nil {
			return err
		}
		want := make([]float64, rows*dim) // of Σ 3·bag², once for each id: 6·bag·2, for each id of the bag
		for i := 0; i < len(list); i += 2 {
			for _, id := range list[i : i+2] {
				for d := range dim {
					want[int(id)*dim+d] += 12 * (numbers[int(list[i])*dim+d] + numbers[int(list[i+1])*dim+d])
				}
			}
		}
		return meshtest.Near("of a sum of rows", grads[0].Dense().Full(), want, 1e-9, 1e-12)
	})
}
