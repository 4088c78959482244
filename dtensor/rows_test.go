package dtensor_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// Distinct takes the caller's word that no row appears twice, and otherwise sees to it.
func TestDistinctRows(t *testing.T) {
	meshtest.On(t, []int{1}, func(ctx context.Context, m *dtensor.Mesh) error {
		return dtensor.Try(ctx, m, func() {
			like := dtensor.Zeros(m, tensor.Float32, []int{9, 1}, layout.Replicate())
			rows := func(makeOf func(like *dtensor.Tensor, index, values *tensor.Tensor) *dtensor.Rows, index ...int64) *dtensor.Rows {
				n := len(index)
				return makeOf(like, tensor.FromSlice(m.Device(), index, n), tensor.Full(m.Device(), tensor.Float32, 1, n, 1))
			}
			known := rows(dtensor.NewDistinctRows, 7, 2)
			if known.Distinct() != known {
				panic("distinct rows are made distinct")
			}
			for _, r := range []*dtensor.Rows{known.Coalesce(), rows(dtensor.NewRows, 7, 2, 7).Distinct()} {
				if got := tensor.ToSlice[int64](r.Index); !slices.Equal(got, []int64{2, 7}) {
					panic(fmt.Sprintf("the rows are %v, want 2 and 7", got))
				}
			}
		})
	})
}
