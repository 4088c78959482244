package checkpoint

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

// A plot is how a table of 7 rows and 6 columns lies: which boxes, as row,
// column, rows, columns, which rank of a mesh holds.
type plot struct {
	name  string
	ranks int
	on    []int // the mesh; nil: all ranks
	boxes map[int][][4]int
}

func plots() []plot {
	return []plot{
		{"several columns a rank", 3, nil, map[int][][4]int{0: {{0, 0, 7, 1}, {0, 4, 7, 2}}, 2: {{0, 1, 7, 3}}}},
		{"several rows a rank", 2, nil, map[int][][4]int{0: {{5, 0, 2, 6}, {0, 0, 2, 6}}, 1: {{2, 0, 3, 6}}}},
		{"grid", 4, nil, map[int][][4]int{0: {{0, 0, 3, 2}}, 1: {{0, 2, 3, 4}}, 2: {{3, 0, 4, 2}}, 3: {{3, 2, 4, 4}}}},
		{"table-wise on a sub-mesh", 4, []int{2, 1}, map[int][][4]int{1: {{0, 0, 7, 6}}}},
		{"sub-mesh without the first rank", 3, []int{2, 1}, map[int][][4]int{2: {{0, 0, 4, 6}, {4, 0, 3, 3}}, 1: {{4, 3, 3, 3}}}},
		{"one rank", 1, nil, map[int][][4]int{0: {{0, 0, 7, 6}}}},
	}
}

// table makes the table of a plot, with the values of "table" or with zeros, and
// a small replicated tensor beside it.
func table(world *comm.Comm, p plot, dt tensor.DType, zero bool) (*dtensor.LocalShards, *dtensor.Tensor, error) {
	on := p.on
	for r := range p.ranks {
		if p.on == nil {
			on = append(on, r)
		}
	}
	m, err := dtensor.NewMeshOf(world, on, dtensor.Axis{Name: "a", Size: len(on)})
	if err != nil {
		return nil, nil, err
	}
	var shards []dtensor.LocalShard
	for _, b := range p.boxes[world.Rank()] {
		w := tensor.Zeros(m.Device(), tensor.Float64, b[2], b[3])
		for i, d := 0, tensor.Data[float64](w); i < len(d) && !zero; i++ {
			d[i] = value("table", (b[0]+i/b[3])*6+b[1]+i%b[3])
		}
		shards = append(shards, dtensor.LocalShard{Data: tensor.Cast(w, dt), Offset: [2]int{b[0], b[1]}})
	}
	l, err := dtensor.NewLocalShards(m, dt, [2]int{7, 6}, shards...)
	if err != nil {
		return nil, nil, err
	}
	return l, dtensor.Full(m, tensor.Float32, 3, []int{5}, layout.Replicate()), nil
}

// right compares the shards with the values of "table".
func right(l *dtensor.LocalShards) error {
	for _, s := range l.Shards() {
		for i, v := range tensor.ToSlice[float64](tensor.Cast(s.Data, tensor.Float64)) {
			cols := s.Data.Dim(1)
			if want := value("table", (s.Offset[0]+i/cols)*6+s.Offset[1]+i%cols); v != want {
				return fmt.Errorf("the shard at %v has %v at %d, want %v", s.Offset, v, i, want)
			}
		}
	}
	return nil
}

// Tables of several shards a rank, on sub-meshes too, are saved and loaded under
// any other plot and element type, as Tensors, and exported.
func TestShards(t *testing.T) {
	var exported []byte
	for i, from := range plots() {
		fs := newMemFS()
		commtest.Run(t, from.ranks, func(ctx context.Context, world *comm.Comm) error {
			l, x, err := table(world, from, tensor.Float32, false)
			if err != nil {
				return err
			}
			var state State
			state.AddShards("table", l)
			state.AddTensor("table#2", x) // the name that a second shard would get
			store, err := Open(ctx, world, "root", Options{fs: fs, blockBytes: 20})
			if err != nil {
				return err
			}
			err = errors.Join(store.Save(ctx, 1, &state), store.Save(ctx, 2, &state), store.Wait())
			return errors.Join(err, export(ctx, world, fs, "m.safetensors", &state, ExportOptions{slab: 5}))
		})
		if err := verify(fs, "root/step-000002"); err != nil {
			t.Errorf("%s: %v", from.name, err)
		}
		b, err := readFile(fs, "m.safetensors", true, 1<<20)
		if exported = append(exported, b...); err != nil || len(exported) != (i+1)*len(b) || !slices.Equal(exported[:len(b)], b) {
			t.Errorf("%s: the export differs (%v)", from.name, err)
		}
		for j, to := range plots() {
			for _, path := range []string{"root/step-000002", "m.safetensors"} {
				commtest.Run(t, to.ranks, func(ctx context.Context, world *comm.Comm) error {
					l, x, err := table(world, to, []tensor.DType{tensor.Float32, tensor.BFloat16}[(i+j)%2], true)
					if err != nil {
						return err
					}
					var state State
					state.AddShards("table", l)
					state.AddTensor("table#2", x)
					if _, err := load(ctx, world, fs, path, &state, LoadOptions{host: fmt.Sprint(world.Rank() % 2)}); err != nil {
						return err
					}
					if err := right(l); err != nil {
						return fmt.Errorf("%s to %s: %w", from.name, to.name, err)
					}
					return nil
				})
			}
		}
		onRanks(t, 3, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error { // as a Tensor
			x := dtensor.Zeros(m, tensor.Float32, []int{7, 6}, layout.Shard(1))
			if _, err := load(ctx, world, fs, "root/step-000002", stateOf(map[string]*dtensor.Tensor{"table": x}),
				LoadOptions{AllowUnexpected: true}); err != nil {
				return err
			}
			return same(map[string]*dtensor.Tensor{"table": x})
		})
	}
	sameError(t, 2, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		var state State
		state.AddShards("x", nil)
		_, err := load(ctx, world, newMemFS(), "none.safetensors", &state, LoadOptions{})
		return fmt.Errorf("checkpoint: %w", err)
	}, "none.safetensors")
	var state State
	if state.AddShards("x", nil); state.err == nil || !strings.Contains(state.err.Error(), `table "x" is nil`) {
		t.Errorf("a nil table: %v", state.err)
	}
}
