package dtensor_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// A tensor goes to another mesh, and its gradient comes back.
func TestToAnotherMesh(t *testing.T) {
	commtest.Run(t, 4, func(ctx context.Context, world *comm.Comm) error {
		all, err := dtensor.NewMesh(world, dtensor.Axis{Name: "a", Size: 2}, dtensor.Axis{Name: "b", Size: 2})
		if err != nil {
			return err
		}
		some, err := dtensor.NewMeshOf(world, []int{3, 1}, dtensor.Axis{Name: "x", Size: 2})
		if err != nil {
			return err
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for _, shape := range [][]int{{4, 6}, {5, 3}, {1, 2}, {0, 2}, {}} {
			list := options(shape, true)
			for range 20 {
				p, q := placementsOf(all, list, rng.IntN(1<<16)), placementsOf(some, list, rng.IntN(1<<16))
				if !valid(all, shape, p) || !valid(some, shape, q) {
					continue
				}
				if err := crossed(ctx, all, some, shape, p, q); err != nil {
					return fmt.Errorf("%v %v → %v: %w", shape, layout.FormatPlacements(p), layout.FormatPlacements(q), err)
				}
			}
		}
		return nil
	})
}

func crossed(ctx context.Context, all, some *dtensor.Mesh, shape []int, p, q []layout.Placement) error {
	x := dtensor.Distribute(all, numbers(all, shape), make([]layout.Placement, 2)...).Redistribute(p...)
	want := tensor.ToSlice[float32](numbers(all, shape))
	_, grads, err := dtensor.ValueAndGrad(ctx, func() T {
		y := x.To(some, q...)
		if got := tensor.ToSlice[float32](y.Full()); some.Inside() && !slices.Equal(got, want) {
			failf("there: %v, want %v", got, want)
		}
		return y.Square().To(all, make([]layout.Placement, 2)...).Sum(nil, false)
	}, x)
	if err != nil {
		return err
	}
	_, twice, err := dtensor.ValueAndGrad(ctx, func() T {
		return dtensor.Gradients(func() T {
			return x.To(some, q...).PowScalar(3).To(all, make([]layout.Placement, 2)...).Sum(nil, false)
		}, x)[0].Sum(nil, false)
	}, x)
	if err != nil {
		return err
	}
	return dtensor.Try(ctx, all, func() {
		for i, g := range tensor.ToSlice[float32](twice[0].Dense().Full()) {
			if g != 6*want[i] {
				failf("second derivative %d is %v, want %v", i, g, 6*want[i])
			}
		}
		for i, g := range tensor.ToSlice[float32](grads[0].Dense().Full()) {
			if g != 2*want[i] {
				failf("gradient %d is %v, want %v", i, g, 2*want[i])
			}
		}
	})
}

func TestToRefusesUnrelatedMeshes(t *testing.T) {
	onMesh(t, []int{2, 2}, func(ctx context.Context, m *dtensor.Mesh) error {
		x := dtensor.Zeros(m, tensor.Float32, []int{4}, make([]layout.Placement, 2)...)
		y := dtensor.Zeros(m.Sub("b"), tensor.Float32, []int{4}, layout.Replicate())
		var wrong *dtensor.LayoutError
		if err := dtensor.Try(ctx, m, func() { x.To(m.Sub("b"), layout.Replicate()) }); !errors.As(err, &wrong) {
			return fmt.Errorf("to a sub-mesh: %v", err)
		}
		if err := dtensor.Try(ctx, m, func() { x.Add(y) }); !errors.As(err, &wrong) || !strings.Contains(err.Error(), "FromLocal") {
			return fmt.Errorf("operands on two meshes: %v", err)
		}
		// What the error says to do.
		z := dtensor.Distribute(m, numbers(m, []int{4}), layout.Shard(0), layout.Shard(0)).Redistribute(layout.Replicate(), layout.Shard(0))
		on, err := dtensor.FromLocal(m.Sub("b"), z.Local(), []int{4}, layout.Shard(0))
		if err != nil {
			return err
		}
		if got := tensor.ToSlice[float32](on.Add(y).Full()); !slices.Equal(got, []float32{1, 2, 3, 4}) {
			return fmt.Errorf("on the sub-mesh it is %v", got)
		}
		return nil
	})
}

func TestGatherTo(t *testing.T) {
	for _, mesh := range meshes {
		onMesh(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			for _, shape := range [][]int{{4, 6}, {5, 3}, {1, 2}, {0, 2}, {}} {
				list := options(shape, true)
				for k := range 20 {
					p := placementsOf(m, list, 7*k)
					if !valid(m, shape, p) {
						continue
					}
					x, err := spread(m, shape, p)
					if err != nil {
						return err
					}
					root := m.Size() - 1
					if err := dtensor.Try(ctx, m, func() {
						got := x.GatherTo(root)
						if here := m.Comm().Rank() == root; here != (got != nil) || here &&
							!slices.Equal(tensor.ToSlice[float32](got), tensor.ToSlice[float32](numbers(m, shape))) {
							failf("%v: got %v", x, got)
						}
					}); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
}

func TestCheckLocals(t *testing.T) {
	onMesh(t, []int{2, 2}, func(ctx context.Context, m *dtensor.Mesh) error {
		S, R := layout.Shard(0), layout.Replicate()
		x := dtensor.Distribute(m, numbers(m, []int{4}), S, R)
		if err := x.CheckLocals(ctx); err != nil {
			return err
		}
		if m.Coord()[0] == 1 && m.Coord()[1] == 1 {
			tensor.Fill(x.Local(), 7)
		}
		if err := x.CheckLocals(ctx); err == nil || !strings.Contains(err.Error(), "ranks 2 and 3") {
			return fmt.Errorf("replicas that differ: %v", err)
		}
		y := dtensor.Zeros(m, []tensor.DType{tensor.Float32, tensor.Float64}[m.Coord()[1]], []int{4}, S, R)
		if err := y.CheckLocals(ctx); err == nil || !strings.Contains(err.Error(), "float64") {
			return fmt.Errorf("types that differ: %v", err)
		}
		_, err := dtensor.FromLocal(m, tensor.Zeros(m.Device(), tensor.Float32, 3), []int{4}, S, R)
		if err == nil || !strings.Contains(err.Error(), "[3]") || !strings.Contains(err.Error(), "[2]") {
			return fmt.Errorf("a local shape that does not fit: %v", err)
		}
		return nil
	})
}

// On a rank outside the mesh everything runs and computes nothing.
func TestOutside(t *testing.T) {
	commtest.Run(t, 3, func(ctx context.Context, world *comm.Comm) error {
		m, err := dtensor.NewMeshOf(world, []int{2, 1}, dtensor.Axis{Name: "x", Size: 2})
		if err != nil {
			return err
		}
		for _, c := range opCases {
			for _, shapes := range c.shapes {
				in := make([]T, len(shapes))
				for i, s := range shapes {
					p := layout.Replicate()
					if len(s) > 0 {
						p = layout.Shard(len(s) - 1)
					}
					in[i] = c.input(m, i, s, []layout.Placement{p})
				}
				a, err := c.run(ctx, in)
				if err != nil {
					return fmt.Errorf("%s %v: %w", c.name, shapes, err)
				}
				if outside := !m.Inside(); outside && a.out.Local().Numel() > 0 {
					return fmt.Errorf("%s %v: outside: %v", c.name, shapes, a.out.Local())
				}
				for i, g := range a.grads {
					if g.Dense() != nil && !slices.Equal(g.Dense().Shape(), shapes[i]) {
						return fmt.Errorf("%s: gradient %d is %v", c.name, i, g.Dense())
					}
				}
			}
		}
		return nil
	})
}
