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

func TestMeshCoordinatesAndGroups(t *testing.T) {
	commtest.Run(t, 4, func(ctx context.Context, world *comm.Comm) error {
		m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: 2}, dtensor.Axis{Name: "one", Size: 1}, dtensor.Axis{Name: "tp", Size: 2})
		if err != nil {
			return err
		}
		if want := []int{world.Rank() / 2, 0, world.Rank() % 2}; !slices.Equal(m.Coord(), want) {
			return fmt.Errorf("coordinate %v, want %v", m.Coord(), want)
		}
		if s := m.String(); s != "(dp=2,one=1,tp=2)" {
			return fmt.Errorf("prints %s", s)
		}
		for _, c := range []struct {
			axes []string
			rank int
			size int
		}{{[]string{"tp"}, world.Rank() % 2, 2}, {[]string{"dp"}, world.Rank() / 2, 2}, {[]string{"one"}, 0, 1}, {nil, 0,
			1}, {[]string{"dp", "tp"}, world.Rank(), 4}} {
			if g := m.Group(c.axes...); g.Rank() != c.rank || g.Size() != c.size {
				return fmt.Errorf("group %v: rank %d of %d, want %d of %d", c.axes, g.Rank(), g.Size(), c.rank, c.size)
			}
		}
		sub := m.Sub("tp")
		if sub != m.Sub("tp") || sub.Size() != 2 || !slices.Equal(sub.Ranks(), []int{world.Rank() / 2 * 2, world.Rank()/2*2 + 1}) {
			return fmt.Errorf("sub-mesh %v of ranks %v", sub, sub.Ranks())
		}
		flat := m.Flatten("all")
		if flat.Size() != 4 || flat.Coord()[0] != world.Rank() || flat.Group("all").Size() != 4 {
			return fmt.Errorf("flattened mesh %v at %v", flat, flat.Coord())
		}
		x := dtensor.Distribute(sub, numbers(sub, []int{5}), layout.Shard(0))
		if !slices.Equal(tensor.ToSlice[float32](x.Full()), []float32{1, 2, 3, 4, 5}) {
			return fmt.Errorf("on the sub-mesh: %v", x.Full())
		}
		return nil
	})
}

// Shards follow the positions of the mesh, in whatever order its ranks are; a
// rank outside has no coordinate, holds empty tensors and takes part in nothing.
func TestMeshOfSomeRanks(t *testing.T) {
	commtest.Run(t, 4, func(ctx context.Context, world *comm.Comm) error {
		order := []int{3, 0, 2}
		m, err := dtensor.NewMeshOf(world, order, dtensor.Axis{Name: "x", Size: 3})
		if err != nil {
			return err
		}
		at := slices.Index(order, world.Rank())
		if m.Inside() != (at >= 0) || at >= 0 && m.Coord()[0] != at || at < 0 && m.Coord() != nil {
			return fmt.Errorf("coordinate %v of rank %d", m.Coord(), world.Rank())
		}
		var whole, sum []float32
		var local []int
		err = dtensor.Try(ctx, m, func() {
			x := dtensor.Distribute(m, numbers(m, []int{7}), layout.Shard(0))
			local = x.ToLocal().Shape()
			whole = tensor.ToSlice[float32](x.Full())
			sum = tensor.ToSlice[float32](x.Gelu().Add(x).Sum(nil, false).Full())
		})
		if err != nil {
			return err
		}
		if at < 0 {
			if local[0] != 0 || len(whole) != 0 || len(sum) != 0 {
				return fmt.Errorf("outside: local %v, whole %v, sum %v", local, whole, sum)
			}
			return nil
		}
		if want := []int{3, 3, 1}[at]; local[0] != want {
			return fmt.Errorf("position %d holds %v, want %d", at, local, want)
		}
		if !slices.Equal(whole, []float32{1, 2, 3, 4, 5, 6, 7}) || len(sum) != 1 {
			return fmt.Errorf("whole %v, sum %v", whole, sum)
		}
		return nil
	})
}

func TestMeshErrors(t *testing.T) {
	commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
		a := dtensor.Axis{Name: "a", Size: 2}
		for _, c := range []struct {
			make func() (*dtensor.Mesh, error)
			want string
		}{
			{func() (*dtensor.Mesh, error) { return dtensor.NewMesh(world) }, "1 to 8"},
			{func() (*dtensor.Mesh, error) { return dtensor.NewMesh(world, a, a) }, `"a"`},
			{func() (*dtensor.Mesh, error) { return dtensor.NewMesh(world, dtensor.Axis{Name: "a", Size: 3}) }, "3 positions for 2 ranks"},
			{func() (*dtensor.Mesh, error) { return dtensor.NewMesh(world, dtensor.Axis{Name: "a", Size: -1}) }, "-1"},
			{func() (*dtensor.Mesh, error) { return dtensor.NewMeshOf(world, []int{0, 0}, a) }, "twice"},
			{func() (*dtensor.Mesh, error) { return dtensor.NewMeshOf(world, []int{0, 2}, a) }, "ranks[1] is 2"},
		} {
			if _, err := c.make(); err == nil || !strings.Contains(err.Error(), c.want) {
				return fmt.Errorf("got %v, want an error with %q", err, c.want)
			}
		}
		m, err := dtensor.NewMesh(world, a)
		if err != nil {
			return err
		}
		var wrong *dtensor.LayoutError
		if err := dtensor.Try(ctx, m, func() { m.Group("b") }); !errors.As(err, &wrong) {
			return fmt.Errorf("a group of no axis: %v", err)
		}
		for name, f := range map[string]func(){"Sub": func() { m.Sub("a", "a") }, "Group": func() { m.Group("a", "a") }} {
			if err := dtensor.Try(ctx, m, f); err == nil || !strings.Contains(err.Error(), name+`: axis "a" of mesh (a=2) is named twice`) {
				return fmt.Errorf("%s of an axis that is named twice: %v", name, err)
			}
		}
		return comm.Barrier(ctx, world)
	})
}
