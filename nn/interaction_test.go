package nn_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/tensor"
)

// DotInteraction and its gradient are the loops of its documentation, on every mesh, with
// samples that the ranks cannot share evenly, one vector, and none.
func TestDotInteraction(t *testing.T) {
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		for _, shape := range [][]int{{5, 4, 3}, {2, 27, 16}, {1, 2, 1}, {3, 1, 4}, {3, 0, 4}, {0, 3, 2}} {
			b, f, d := shape[0], shape[1], shape[2]
			for _, place := range [][]layout.Placement{batch(), mesh.Every(layout.Shard(0)), mesh.Every(layout.Replicate())} {
				x := wave(mesh, 1, shape, place...)
				var y *dtensor.Tensor
				value, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
					y = nn.DotInteraction(x)
					dtensor.Keep(y)
					return y.Square().Sum(nil, false)
				}, x)
				if err != nil {
					return fmt.Errorf("%v %v: %w", shape, place, err)
				}
				xs := tensor.ToSlice[float32](x.Full())
				want, dx, sum := []float32{}, make([]float32, len(xs)), 0.0
				for s := range b {
					for i := range f {
						for j := range i {
							v, w := xs[(s*f+i)*d:][:d], xs[(s*f+j)*d:][:d]
							dot := float32(0)
							for k := range d {
								dot += v[k] * w[k]
							}
							want, sum = append(want, dot), sum+float64(dot)*float64(dot)
							for k := range d {
								dx[(s*f+i)*d+k] += 2 * dot * w[k]
								dx[(s*f+j)*d+k] += 2 * dot * v[k]
							}
						}
					}
				}
				if got := y.Shape(); !slices.Equal(got, []int{b, f * (f - 1) / 2}) {
					return fmt.Errorf("%v %v: the result has shape %v", shape, place, got)
				}
				if got := tensor.ToSlice[float32](y.Full()); !near(got, want) {
					return fmt.Errorf("%v %v: %v, want %v", shape, place, got, want)
				}
				if got := tensor.ToSlice[float32](grads[0].Dense().Full()); !near(got, dx) {
					return fmt.Errorf("%v %v: the gradient is %v, want %v", shape, place, got, dx)
				}
				if !near([]float32{float32(value.Item())}, []float32{float32(sum)}) {
					return fmt.Errorf("%v %v: the sum of squares is %v, want %v", shape, place, value.Item(), sum)
				}
			}
		}
		err := dtensor.Try(ctx, mesh, func() { nn.DotInteraction(wave(mesh, 1, []int{4, 3}, batch()...)) })
		if err == nil || !strings.Contains(err.Error(), "[B, F, D]") {
			return fmt.Errorf("of two dimensions: got %v", err)
		}
		return nil
	})
}

// NewLinears has a layer from each width to the next and an activation between each two.
func TestNewLinears(t *testing.T) {
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		return dtensor.Try(ctx, mesh, func() {
			init, same := nn.NewInit(mesh, 3), nn.NewInit(mesh, 3)
			a, b := nn.NewLinear(same, 12, 5, true, nn.Style{}), nn.NewLinear(same, 5, 2, true, nn.Style{})
			x := wave(mesh, 1, []int{9, 12}, batch()...)
			got := tensor.ToSlice[float32](nn.NewLinears(init, (*dtensor.Tensor).Relu, 12, 5, 2).Forward(x).Full())
			if want := tensor.ToSlice[float32](b.Forward(a.Forward(x).Relu()).Full()); !slices.Equal(got, want) {
				dtensor.Throw(fmt.Errorf("%v, want %v", got, want))
			}
			for widths, layers := range []int{0, 0, 1, 3, 5} {
				if s := nn.NewLinears(init, (*dtensor.Tensor).Relu, []int{4, 3, 2, 1}[:widths]...); len(s) != layers {
					dtensor.Throw(fmt.Errorf("of %d widths %d modules, want %d", widths, len(s), layers))
				}
			}
		})
	})
}
