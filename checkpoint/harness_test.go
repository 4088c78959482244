package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// A setting is a number of ranks, a mesh over some of them and placements, given
// the number of dimensions of a tensor.
type setting struct {
	name   string
	ranks  int
	mesh   []int // sizes of the axes
	on     []int // which ranks; nil: all
	placed func(shape []int) []layout.Placement
}

func settings() []setting {
	rep, shard := layout.Replicate(), layout.Shard
	dim := func(d int, shape []int) layout.Placement { // S(d) where there is such a dimension
		if d < len(shape) {
			return shard(d)
		}
		return rep
	}
	on := func(dims ...int) func(shape []int) []layout.Placement { // -1 replicates
		return func(shape []int) []layout.Placement {
			var list []layout.Placement
			for _, d := range dims {
				if d < 0 {
					list = append(list, rep)
				} else {
					list = append(list, dim(d, shape))
				}
			}
			return list
		}
	}
	return []setting{
		{"1 R", 1, []int{1}, nil, on(-1)},
		{"2 R", 2, []int{2}, nil, on(-1)},
		{"2 S(0)", 2, []int{2}, nil, on(0)},
		{"3 S(0)", 3, []int{3}, nil, on(0)},
		{"3 S(1)", 3, []int{3}, nil, on(1)},
		{"4 S(0)", 4, []int{4}, nil, on(0)},
		{"2x2 S(0),S(1)", 4, []int{2, 2}, nil, on(0, 1)},
		{"2x2 R,S(0)", 4, []int{2, 2}, nil, on(-1, 0)},
		{"2x2 S(0),S(0)", 4, []int{2, 2}, nil, on(0, 0)},
		{"2x2 S(1),R", 4, []int{2, 2}, nil, on(1, -1)},
		{"ranks 2,0 of 3 S(0)", 3, []int{2}, []int{2, 0}, on(0)},
		{"3 C(0)", 3, []int{3}, nil, func(shape []int) []layout.Placement {
			if len(shape) == 0 {
				return []layout.Placement{rep}
			}
			return []layout.Placement{layout.ShardCyclic()}
		}},
		{"2x2 S(1),C(0)", 4, []int{2, 2}, nil, func(shape []int) []layout.Placement {
			if len(shape) == 0 {
				return []layout.Placement{rep, rep}
			}
			return []layout.Placement{dim(1, shape), layout.ShardCyclic()}
		}},
		{"3 sizes", 3, []int{3}, nil, func(shape []int) []layout.Placement {
			if len(shape) == 0 {
				return []layout.Placement{rep}
			}
			d := len(shape) - 1
			return []layout.Placement{layout.ShardSizes(d, 0, shape[d]-shape[d]/3, shape[d]/3)}
		}},
	}
}

func (s setting) open(world *comm.Comm) (*dtensor.Mesh, error) {
	var axes []dtensor.Axis
	for i, n := range s.mesh {
		axes = append(axes, dtensor.Axis{Name: string(rune('a' + i)), Size: n})
	}
	if s.on != nil {
		return dtensor.NewMeshOf(world, s.on, axes...)
	}
	return dtensor.NewMesh(world, axes...)
}

// shapes are uneven, empty, of size 1, without dimensions.
func shapes() map[string][]int {
	return map[string][]int{"matrix": {7, 5}, "one": {1}, "scalar": {}, "empty": {0, 3}, "cube": {3, 4, 5}, "flat": {1, 9}, "row": {10}}
}

// value is the element of a tensor at a flat index: exact in every float type
// from bfloat16 up.
func value(name string, i int) float64 { return float64((i*7+len(name))%120 - 60) }

// full makes the tensors of shapes with their values, or with zeros.
func full(m *dtensor.Mesh, s setting, dt tensor.DType, zero bool) map[string]*dtensor.Tensor {
	all := map[string]*dtensor.Tensor{}
	list := shapes()
	for _, name := range slices.Sorted(maps.Keys(list)) { // in one order on all ranks
		shape := list[name]
		w := tensor.Zeros(m.Device(), tensor.Float64, shape...)
		if d := tensor.Data[float64](w); !zero {
			for i := range d {
				d[i] = value(name, i)
			}
		}
		all[name] = dtensor.Distribute(m, tensor.Cast(w, dt), s.placed(shape)...)
	}
	return all
}

func stateOf(all map[string]*dtensor.Tensor) *State {
	var state State
	for _, name := range slices.Sorted(maps.Keys(all)) {
		state.AddTensor(name, all[name])
	}
	return &state
}

// same compares with the values.
func same(all map[string]*dtensor.Tensor) error {
	for name, t := range all {
		b, ok := local(t)
		if !ok {
			continue
		}
		got := tensor.ToSlice[float64](tensor.Cast(t.Local(), tensor.Float64))
		var err error
		for u := range runs(whole(t.Shape()), b) {
			for i := range u.n {
				at := flatIndex(t, u.x+i)
				if want := value(name, at); got[u.y+i] != want && err == nil {
					err = fmt.Errorf("%s %v: element %d is %v, want %v", name, t, at, got[u.y+i], want)
				}
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// flatIndex returns the flat index of an element that runs counts by t's offset, which
// counts the rows of the ranks before where rows are dealt out in turn.
func flatIndex(t *dtensor.Tensor, at int) int {
	axis := t.Layout().Cyclic()
	if axis < 0 {
		return at
	}
	offset, _ := t.Offset()
	width := whole(t.Shape()[1:]).numel()
	row := (at/width-offset[0])*t.Mesh().Axes()[axis].Size + t.Mesh().Coord()[axis]
	return row*width + at%width
}

// onSetting runs f on the ranks of s, with their mesh.
func onSetting(t testing.TB, s setting, f func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error) {
	t.Helper()
	commtest.Run(t, s.ranks, func(ctx context.Context, world *comm.Comm) error {
		m, err := s.open(world)
		if err != nil {
			return err
		}
		return f(ctx, world, m)
	})
}

// onRanks runs f on n ranks, with a mesh of all of them.
func onRanks(t testing.TB, n int, f func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error) {
	t.Helper()
	onSetting(t, setting{ranks: n, mesh: []int{n}}, f)
}

// save saves the values under s.
func save(t testing.TB, fs fileSystem, root string, s setting, step int, dt tensor.DType, o Options) {
	t.Helper()
	o.fs = fs
	onSetting(t, s, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		store, err := Open(ctx, world, root, o)
		if err != nil {
			return err
		}
		state := stateOf(full(m, s, dt, false))
		state.AddValue("step", &step)
		return errors.Join(store.Save(ctx, step, state), store.Wait())
	})
}
