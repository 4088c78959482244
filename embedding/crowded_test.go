package embedding_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// TestCrowdedReplicas: where many replicas have the same rows, their sums are made of the whole table, with the bits of
// sums of the rows alone, and rows that nobody has stay away.
func TestCrowdedReplicas(t *testing.T) {
	const rows, width, each = 5, 3, 8 // row 4 is in no batch
	for _, ranks := range []int{2, 9} {
		ids := make([]int64, ranks*each)
		seed := make([]float32, len(ids)*width)
		for i := range ids {
			if ids[i] = int64(i * 5 / 3 % 4); i/each == ranks/2 { // one rank lacks row 3
				ids[i] %= 3
			}
			for c := range width {
				seed[i*width+c] = float32(math.Sin(float64(i*width + c)))
				if ids[i] == 3 { // a sum of -0 is -0
					seed[i*width+c] = float32(math.Copysign(0, -1))
				}
			}
		}
		want := map[int64][]float32{}
		for r := range ranks {
			its := map[int64][]float32{}
			for i := r * each; i < (r+1)*each; i++ {
				add(its, ids[i], seed[i*width:(i+1)*width])
			}
			for row, sum := range its {
				add(want, row, sum)
			}
		}
		meshtest.On(t, []int{ranks}, func(ctx context.Context, m *dtensor.Mesh) error {
			w := meshtest.Place(m, make([]float32, rows*width), []int{rows, width}, replicate)
			x := meshtest.Place(m, ids, []int{len(ids)}, shard0)
			gy := meshtest.Place(m, seed, []int{len(ids), width}, shard0)
			before := m.Comm().Stats()
			_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
				y := embedding.Lookup(w, x, embedding.Options{})
				zero := dtensor.Zeros(m, tensor.Float32, nil, replicate)
				return dtensor.Record("Seed", zero, []*dtensor.Tensor{y}, func(*dtensor.Tensor) []dtensor.Grad {
					return []dtensor.Grad{dtensor.Dense(gy)}
				})
			}, w)
			if err != nil {
				return err
			}
			gathers := m.Comm().Stats().Kinds[comm.AllGatherVKind].Calls - before.Kinds[comm.AllGatherVKind].Calls
			if crowded := ranks > 4; crowded != (gathers == 0) {
				return fmt.Errorf("%d ranks made %d gathers of rows", ranks, gathers)
			}
			got, ok := grads[0].Rows()
			if !ok {
				return fmt.Errorf("the gradient is not of rows")
			}
			index, values := tensor.ToSlice[int64](got.Index), tensor.ToSlice[float32](got.Values)
			if !slices.Equal(index, []int64{0, 1, 2, 3}) {
				return fmt.Errorf("the gradient has the rows %v", index)
			}
			for i, v := range values {
				if sum := want[index[i/width]][i%width]; math.Float32bits(v) != math.Float32bits(sum) {
					return fmt.Errorf("row %d, column %d: got %v, want %v", index[i/width], i%width, v, sum)
				}
			}
			return nil
		})
	}
}

// add adds values to a row of sums.
func add(sums map[int64][]float32, row int64, values []float32) {
	if sums[row] == nil {
		sums[row] = slices.Clone(values)
		return
	}
	for c, v := range values {
		sums[row][c] += v
	}
}
