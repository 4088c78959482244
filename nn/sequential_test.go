package nn_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/tensor"
)

// A Sequential is its modules one after the other, named by their places.
func TestSequential(t *testing.T) {
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		return dtensor.Try(ctx, mesh, func() {
			init := nn.NewInit(mesh, 3)
			a, b := nn.NewLinear(init, 12, 5, true, nn.Style{}), nn.NewLinear(init, 5, 2, false, nn.Style{})
			s := nn.Sequential{a, nn.Func((*dtensor.Tensor).Relu), b}
			x := wave(mesh, 1, []int{2, 9, 12}, batch()...)
			got := tensor.ToSlice[float32](s.Forward(x).Full())
			if want := tensor.ToSlice[float32](b.Forward(a.Forward(x).Relu()).Full()); !slices.Equal(got, want) {
				dtensor.Throw(fmt.Errorf("%v, want %v", got, want))
			}
			if got := (nn.Sequential{}).Forward(x); got != x {
				dtensor.Throw(fmt.Errorf("no modules return %v, want what they get", got))
			}
			var names []string
			for name := range nn.Join([]string{"top", "list"}, s, nn.List[*nn.Linear]{b, a}) {
				names = append(names, name)
			}
			want := []string{"top.0.weight", "top.0.bias", "top.2.weight", "list.0.weight", "list.1.weight", "list.1.bias"}
			if !slices.Equal(names, want) {
				dtensor.Throw(fmt.Errorf("parameters %v, want %v", names, want))
			}
		})
	})
}

// Two tables of one Init begin with other rows, the same on any mesh.
func TestNewEmbedding(t *testing.T) {
	var want []float32
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		return dtensor.Try(ctx, mesh, func() {
			init := nn.NewInit(mesh, 3)
			c := embedding.Config{Rows: 5, Dim: 3, Std: 1}
			a := tensor.ToSlice[float32](nn.NewEmbedding(init, c).Weight().Full())
			b := tensor.ToSlice[float32](nn.NewEmbedding(init, c).Weight().Full())
			if slices.Equal(a, b) {
				dtensor.Throw(fmt.Errorf("both tables begin with %v", a))
			}
			if mesh.Comm().Rank() != 0 {
				return
			}
			if want == nil {
				want = b
			}
			if !slices.Equal(b, want) {
				dtensor.Throw(fmt.Errorf("%v on %v, want %v", b, mesh, want))
			}
		})
	})
}
