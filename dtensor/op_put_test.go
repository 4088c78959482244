package dtensor_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// IndexPut is the loop of its documentation; the gradient of what a later slice
// overwrote is zero.
func TestIndexPut(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		ints := func(v ...int64) T {
			return dtensor.Distribute(m, tensor.FromSlice(m.Device(), v, len(v)), layout.Shard(0))
		}
		x := dtensor.Distribute(m, numbers(m, []int{3, 2}), layout.Shard(0)) // 1 to 6
		src := dtensor.Distribute(m, tensor.FromSlice(m.Device(), []float32{10, 20, 30}, 3), layout.Shard(0))
		row, column := []int64{2, 0, 2}, []int64{1, 0, 1}
		for _, accumulate := range []bool{false, true} {
			want, gx, gsrc := []float32{1, 2, 3, 4, 5, 6}, []float32{1, 1, 1, 1, 1, 1}, []float32{1, 1, 1}
			for i, v := range []float32{10, 20, 30} {
				k := row[i]*2 + column[i]
				if accumulate {
					want[k] += v
				} else {
					want[k], gx[k] = v, 0
				}
			}
			if !accumulate {
				gsrc[0] = 0 // the last one was put at the same place
			}
			var y T
			_, grads, err := dtensor.ValueAndGrad(ctx, func() T {
				y = x.IndexPut([]T{ints(row...), ints(column...)}, src, accumulate)
				dtensor.Keep(y)
				return y.Sum(nil, false)
			}, x, src)
			if err != nil {
				return err
			}
			err = dtensor.Try(ctx, m, func() {
				for _, c := range []struct {
					what string
					got  T
					want []float32
				}{{"result", y, want}, {"gradient of x", grads[0].Dense(), gx}, {"gradient of src", grads[1].Dense(), gsrc}} {
					if got := tensor.ToSlice[float32](c.got.Full()); !slices.Equal(got, c.want) {
						failf("accumulate %v: %s is %v, want %v", accumulate, c.what, got, c.want)
					}
				}
			})
			if err != nil {
				return err
			}
		}
		var wrong *tensor.IndexError
		if err := dtensor.Try(ctx, m, func() { x.IndexPut([]T{ints(0, 3)}, x.Narrow(0, 0, 2), false) }); !errors.As(err, &wrong) {
			failf("an index out of range gives %v", err)
		}
		var misfit *dtensor.LayoutError
		if err := dtensor.Try(ctx, m, func() { x.IndexPut([]T{ints(0, 1)}, src, false) }); !errors.As(err, &misfit) {
			failf("a src that does not fit gives %v", err)
		}
		return nil
	})
}
