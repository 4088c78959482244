package dtensor_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// What other systems compute wrongly without a word is right here.
func TestSilentlyWrongElsewhere(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		S, P, R := layout.Shard(0), layout.Partial(layout.Sum), layout.Replicate()
		vector := func(p layout.Placement, data ...float32) T { // Partial: 3x on the first rank, -2x on the last
			x, err := spread(m, []int{len(data)}, []layout.Placement{p})
			if err != nil {
				failf("%w", err)
			}
			one := dtensor.Distribute(m, numbers(m, []int{len(data)}), R)
			return x.Div(one).Mul(dtensor.Distribute(m, tensor.FromSlice(m.Device(), data, len(data)), R))
		}
		return dtensor.Try(ctx, m, func() {
			for _, c := range []struct {
				name string
				got  T
				want []float32
			}{
				{"mean of an uneven shard", vector(S, 1, 2, 6).Mean(nil, false), []float32{3}},
				{"variance of an uneven shard", vector(S, 1, 2, 6).Var(nil, 0, false), []float32{14.0 / 3}},
				{"partial plus a number", vector(P, 1, 2).AddScalar(10), []float32{11, 12}},
				{"partial plus a replicated tensor", vector(P, 1, 2).Add(dtensor.Full(m, tensor.Float32, 10, []int{2}, R)), []float32{11, 12}},
				{"partial times partial", vector(P, 1, 2).Mul(vector(P, 3, 4)), []float32{3, 8}},
				{"norm of a partial", vector(P, 3, 4).Norm(2, nil, false), []float32{5}},
				{"largest of a partial", vector(P, 3, 4).Amax(nil, false), []float32{4}},
				{"absolute value of a partial", vector(P, -3, 4).Abs(), []float32{3, 4}},
				{"fill of a partial", dtensor.Full(m, tensor.Float32, 7, []int{2}, P), []float32{7, 7}},
				{"average of a partial average", vector(layout.Partial(layout.Avg), 1, 2).Sum(nil, false), []float32{3}},
				{"any of a shard", vector(S, 0, 0, 1).CompareScalar(tensor.OpGt, 0).Any(nil, false).Cast(tensor.Float32), []float32{1}},
				{"all of a shard", vector(S, 1, 1, 0).CompareScalar(tensor.OpGt, 0).All(nil, false).Cast(tensor.Float32), []float32{0}},
			} {
				got := tensor.ToSlice[float32](c.got.Full())
				if !slices.EqualFunc(got, c.want, func(a, b float32) bool { return math.Abs(float64(a-b)) < 1e-5 }) {
					failf("%s: %v, want %v", c.name, got, c.want)
				}
			}
		})
	})
}

// A tensor prints as its type and layout.
func TestString(t *testing.T) {
	onMesh(t, []int{2, 1}, func(ctx context.Context, m *dtensor.Mesh) error {
		x := dtensor.Zeros(m, tensor.Float32, []int{4, 8}, layout.Shard(-2), layout.Replicate())
		if got := x.String(); got != "float32 [4, 8] S(0),R on (a=2,b=1)" {
			return fmt.Errorf("prints %q", got)
		}
		return nil
	})
}
