package dtensor_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// TestArange compares each layout with the whole, divided, and counts what is
// communicated: nothing.
func TestArange(t *testing.T) {
	for _, shape := range meshes {
		onMesh(t, shape, func(ctx context.Context, m *dtensor.Mesh) error {
			for _, dt := range []tensor.DType{tensor.Int64, tensor.Float32} {
				for _, n := range []int{0, 1, 5, 8} {
					places := options([]int{n}, dt == tensor.Int64)
					places = slices.DeleteFunc(places, layout.Placement.IsMask)
					for _, p := range meshtest.Combinations(len(shape), places...) {
						if !valid(m, []int{n}, p) {
							continue
						}
						record := m.Comm().Record()
						got := dtensor.Arange(m, dt, -2, n, p...)
						want := dtensor.Distribute(m, tensor.Arange(m.Device(), dt, -2, n), p...)
						if calls := record.Stop(); len(calls) > 0 {
							return fmt.Errorf("%v: %v", got, calls)
						}
						if a, b := meshtest.Values(got.Local()), meshtest.Values(want.Local()); got.String() != want.String() || !slices.Equal(a, b) {
							return fmt.Errorf("%v %v, want %v %v", got, a, want, b)
						}
					}
				}
			}
			return nil
		})
	}
}

// TestEvery replicates and divides on every axis, also as a rank outside the mesh
// sees it.
func TestEvery(t *testing.T) {
	commtest.Run(t, 5, func(ctx context.Context, world *comm.Comm) error {
		m, err := dtensor.NewMeshOf(world, []int{0, 1, 2, 3}, dtensor.Axis{Name: "a", Size: 2}, dtensor.Axis{Name: "b", Size: 2})
		if err != nil {
			return err
		}
		x := dtensor.Arange(m, tensor.Int64, 3, 5, m.Every(layout.Shard(0))...)
		y := x.Redistribute(m.Every(layout.Replicate())...)
		if got := x.String() + " " + y.String(); got != "int64 [5] S(0),S(0) on (a=2,b=2) int64 [5] R,R on (a=2,b=2)" {
			return fmt.Errorf("%s", got)
		}
		if m.Inside() && !slices.Equal(tensor.ToSlice[int64](y.Local()), []int64{3, 4, 5, 6, 7}) {
			return fmt.Errorf("%v", y.Local())
		}
		return nil
	})
}

// TestShapeIsACopy appends to parts of what Shape, LocalShape and Placements return, which leaves the tensor, and others of
// its layout, as they are.
func TestShapeIsACopy(t *testing.T) {
	onMesh(t, []int{1}, func(ctx context.Context, m *dtensor.Mesh) error {
		return dtensor.Try(ctx, m, func() {
			make1 := func() T { return dtensor.Full(m, tensor.Float32, 1, []int{4, 3, 2}, layout.Replicate()) }
			x := make1()
			if y := x.Reshape(append(x.Shape()[:1], 2, 3)...); !slices.Equal(y.Shape(), []int{4, 2, 3}) {
				failf("the reshaped tensor has shape %v", y.Shape())
			}
			x.LocalShape()[0], x.Placements()[0] = 7, layout.Shard(1)
			for _, z := range []T{x, make1()} {
				if z.Placement(0) != layout.Replicate() || !slices.Equal(z.Shape(), []int{4, 3, 2}) || !slices.Equal(z.LocalShape(), z.Shape()) {
					failf("%v has shape %v, on this rank %v", z.Placements(), z.Shape(), z.LocalShape())
				}
			}
			if err := dtensor.Try(ctx, m, func() { x.Placement(1) }); err == nil || !strings.Contains(err.Error(), "axis 1 is out of range [0, 1)") {
				failf("Placement on axis 1: %v", err)
			}
			if s := x.Sum([]int{1}, false); tensor.ToSlice[float32](s.Full())[7] != 3 {
				failf("the sums are %v", s.Full())
			}
		})
	})
}

// TestInputsStay calls operators whose results have other shapes than their input: what a rank has of it keeps its shape.
func TestInputsStay(t *testing.T) {
	onMesh(t, []int{1}, func(ctx context.Context, m *dtensor.Mesh) error {
		return dtensor.Try(ctx, m, func() {
			for _, shape := range [][]int{{5, 3}, {3, 5}, {2, 5, 3}} {
				x := dtensor.Normal(m, dtensor.Key{Seed: 1}, 0, 1, shape, layout.Replicate())
				x.QR()
				x.SVD()
				if !slices.Equal(x.Local().Shape(), shape) {
					failf("%v has the local tensor %v", x, x.Local())
				}
			}
		})
	})
}
