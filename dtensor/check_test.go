package dtensor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// What is said to be replicated and is not gets the same error on every rank of the mesh,
// which names the tensor, two ranks and the line; the mesh stays usable, and no call is
// counted. Off, nothing is compared.
func TestCheckReplicas(t *testing.T) {
	R, S := layout.Replicate(), layout.Shard
	own := func(m *dtensor.Mesh) *tensor.Tensor { // rank 2 has other numbers
		v := 1.0
		if m.Comm().Rank() == 2 {
			v = 2
		}
		return tensor.Full(m.Device(), tensor.Float32, v, 3)
	}
	for name, c := range map[string]struct {
		want string
		f    func(ctx context.Context, m *dtensor.Mesh) error
	}{
		"FromLocal": {"FromLocal at dtensor/check_test.go:", func(ctx context.Context, m *dtensor.Mesh) error {
			_, err := dtensor.FromLocal(m, own(m), []int{6}, S(0), R)
			return err
		}},
		"Distribute": {"Distribute: float32 [3] R,R on mesh (a=2,b=2): ranks 0 and 2", func(ctx context.Context, m *dtensor.Mesh) error {
			return dtensor.Try(ctx, m, func() { dtensor.Distribute(m, own(m), R, S(0)) })
		}},
		"ValueAndGrad": {"the gradient of parameter 1, float32 [3] R,R", func(ctx context.Context, m *dtensor.Mesh) error {
			x, w := m.Wrap("mine", own(m), nil, false, []int{3}, R, R), dtensor.Full(m, tensor.Float32, 1, []int{3}, R, R)
			same := dtensor.Full(m, tensor.Float32, 1, []int{3}, R, R)
			_, _, err := dtensor.ValueAndGrad(ctx, func() T { return x.Mul(w).Add(same).Sum(nil, false) }, same, w)
			return err
		}},
		"rows": {"the row-sparse gradient of parameter 0, [3, 2] R,R", func(ctx context.Context, m *dtensor.Mesh) error {
			w := dtensor.Full(m, tensor.Float32, 1, []int{3, 2}, R, R)
			_, _, err := dtensor.ValueAndGrad(ctx, func() T {
				one := dtensor.Full(m, tensor.Float32, 1, nil, R, R)
				return dtensor.Record("mine", one, []T{w}, func(T) []dtensor.Grad {
					n := 1 + m.Comm().Rank()/2 // ranks 2 and 3 have one row more
					index := tensor.Arange(m.Device(), tensor.Int64, 0, n)
					return []dtensor.Grad{dtensor.Sparse(dtensor.NewRows(w, index, tensor.Full(m.Device(), tensor.Float32, 1, n, 2)))}
				})
			}, w)
			return err
		}},
		"CheckSame": {"step: parameter 1", func(ctx context.Context, m *dtensor.Mesh) error {
			x, w := m.Wrap("mine", own(m), nil, false, []int{3}, R, R), dtensor.Full(m, tensor.Float32, 1, []int{3}, R, R)
			return dtensor.Try(ctx, m, func() {
				dtensor.CheckSame("step", []T{w, x}, func(i int) string { return fmt.Sprint("parameter ", i) })
			})
		}},
	} {
		onMesh(t, []int{2, 2}, func(ctx context.Context, m *dtensor.Mesh) error {
			m.CheckReplicas(false)
			if err := c.f(ctx, m); err != nil {
				return fmt.Errorf("%s, off: %w", name, err)
			}
			m.CheckReplicas(true)
			record := m.Comm().Record()
			before := m.Comm().Stats().Total().Calls
			err := c.f(ctx, m)
			if n := len(record.Stop()); n != m.Comm().Stats().Total().Calls-before || name != "ValueAndGrad" && n != 0 {
				return fmt.Errorf("%s: the check is among %d calls", name, n)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "should hold the same and do not") ||
				!strings.Contains(err.Error(), "check_test.go:") {
				return fmt.Errorf("%s: got %v, want %q", name, err, c.want)
			}
			return comm.Barrier(ctx, m.Comm())
		})
	}
}

// Every part is that of one rank, whatever the others hold, from every position, and in
// one scatter and one broadcast.
func TestDistributeFrom(t *testing.T) {
	for _, mesh := range meshes {
		onMesh(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			for _, shape := range [][]int{{4, 6}, {5, 3}, {1, 2}, {0, 3}, {}} {
				list := []layout.Placement{layout.Replicate(), layout.Partial(layout.Sum)}
				for d := range shape {
					list = append(list, layout.Shard(d))
				}
				for k := range pow(len(list), len(m.Axes())) {
					places := placementsOf(m, list, k)
					position := k % m.Size()
					whole := numbers(m, shape)
					if m.Comm().Rank() != position {
						whole = tensor.Zeros(m.Device(), tensor.Float32, shape...)
					}
					var got T
					record := m.Comm().Record()
					if err := dtensor.Try(ctx, m, func() { got = dtensor.DistributeFrom(m, position, whole, places...); dtensor.Keep(got) }); err != nil {
						return err
					}
					if n := len(slices.DeleteFunc(record.Stop(), func(e comm.Event) bool { return e.Kind == comm.SplitKind })); n > 2 {
						return fmt.Errorf("%v: %d calls", got, n)
					}
					want := dtensor.Distribute(m, numbers(m, shape), places...)
					if got.Layout() != want.Layout() || !slices.Equal(tensor.ToSlice[float32](got.Local()), tensor.ToSlice[float32](want.Local())) {
						return fmt.Errorf("%v from %d: %v, want %v", got, position, got.Local(), want.Local())
					}
				}
			}
			var wrong *dtensor.LayoutError
			if err := dtensor.Try(ctx, m, func() { dtensor.DistributeFrom(m, m.Size(), numbers(m, []int{2})) }); !errors.As(err, &wrong) {
				return fmt.Errorf("a position outside: %v", err)
			}
			return nil
		})
	}
	commtest.Run(t, 3, func(ctx context.Context, world *comm.Comm) error {
		m, err := dtensor.NewMeshOf(world, []int{2, 1}, dtensor.Axis{Name: "x", Size: 2})
		if err != nil {
			return err
		}
		x := dtensor.DistributeFrom(m, 1, tensor.Full(m.Device(), tensor.Int64, float64(world.Rank()), 4), layout.Shard(0))
		if x.DType() != tensor.Int64 || m.Inside() && !slices.Equal(tensor.ToSlice[int64](x.Local()), []int64{1, 1}) {
			return fmt.Errorf("rank %d: %v %v", world.Rank(), x, x.Local())
		}
		return nil
	})
}

func pow(base, n int) int {
	p := 1
	for range n {
		p *= base
	}
	return p
}
