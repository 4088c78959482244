package dynamictest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/checkpoint"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
)

// Optimizers and checkpoints refuse by name what a table on a disk cannot do.
func TestStoredRefusals(t *testing.T) {
	commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
		mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "tp", Size: 2})
		if err != nil {
			return err
		}
		table := func() (users *embedding.Table) {
			return embedding.NewTable(mesh, embedding.Config{Name: "users", Rows: 100, Dim: 2, Layout: embedding.RowWise("tp"), Store: t.TempDir(),
				Cache: 32 * 2 * 4})
		}
		steps := func(make func(params []*dtensor.Tensor) optim.Optimizer) func() {
			return func() {
				users := table()
				opt := make([]*dtensor.Tensor{users.Resident()})
				users.Follow(opt.State())
				users.Fuse(func(rows *dtensor.Rows) error { return opt.Step([]dtensor.Grad{dtensor.Sparse(rows)}, 0.1) })
				ids := dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), []int64{1, 2}, 2), layout.Replicate())
				_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return users.Lookup(ids).Sum(nil, false) }, users.Param())
				if err != nil {
					panic(err)
				}
			}
		}
		saves := func(add func(state *checkpoint.State, users *embedding.Table)) func() {
			return func() {
				var state checkpoint.State
				add(&state, table())
				store, err := checkpoint.Open(ctx, world, filepath.Join(t.TempDir()), checkpoint.Options{})
				if err == nil {
					err = errors.Join(store.Save(ctx, 1, &state), store.Wait())
				}
				if err != nil {
					panic(err)
				}
			}
		}
		cases := map[string]func(){
			"AdamW.Step: parameter 0 has those rows of table \"users\" that are in memory, and this AdamW changes every row": steps(
				optim.With(optim.NewAdamW, optim.AdamWConfig{})),
			"this SGD changes every row": steps(
				optim.With(optim.NewSGD, optim.SGDConfig{Momentum: 0.9})),
			"NewSparseAdam: parameter 0 is float32 [100, 2]": func() {
				optim.NewSparseAdam([]*dtensor.Tensor{table().Weight()}, optim.SparseAdamConfig{})
			},
			`tensor "x" has those rows of table "users" that are in memory`: saves(func(state *checkpoint.State, users *embedding.Table) {
				state.AddTensor("x", users.Resident())
			}),
			`tensor "y.sum.0" has those rows`: saves(func(state *checkpoint.State, users *embedding.Table) {
				opt := optim.NewRowAdagrad([]*dtensor.Tensor{users.Resident()}, optim.RowAdagradConfig{})
				state.AddTensors("y.", opt.State())
				users.Follow(opt.State())
			}),
		}
		for _, says := range slices.Sorted(maps.Keys(cases)) { // one order on all ranks
			if err := recovered(ctx, mesh, cases[says]); err == nil || !strings.Contains(err.Error(), says) {
				return fmt.Errorf("got %w, want %q", err, says)
			}
		}
		return nil
	})
}

// recovered returns what f throws, or the error that it panics with.
func recovered(ctx context.Context, mesh *dtensor.Mesh, f func()) (err error) {
	defer func() {
		if e, ok := recover().(error); ok && err == nil {
			err = e
		}
	}()
	return dtensor.Try(ctx, mesh, f)
}

// numbered are rows of which each element is its global index; the first row is row first. Reading fails from row bad on.
type numbered struct {
	first, width int
	got          []byte // what was written
	bad          int    // -1: none
}

func (n *numbered) ReadRows(first int, b []byte) error {
	for i := 0; i < len(b); i += 4 {
		binary.LittleEndian.PutUint32(b[i:], uint32((n.first+first)*n.width+i/4))
	}
	if n.bad >= 0 && first*n.width*4+len(b) > n.bad*n.width*4 {
		return fmt.Errorf("row %d is damaged", n.first+n.bad)
	}
	return nil
}

func (n *numbered) WriteRows(first int, b []byte) error {
	n.got = append(n.got[:first*n.width*4], b...)
	return nil
}

func (*numbered) Sync() error { return nil }

// A tensor on a disk is saved and loaded in pieces, under another number of ranks and as another type; and an error in a
// later piece is that of the save on every rank.
func TestStoredInPieces(t *testing.T) {
	const rows, width = 17000, 2048 // 139 MB
	dir := t.TempDir()
	state := func(mesh *dtensor.Mesh, n *numbered) (state *checkpoint.State) {
		n.first, n.width = 0, width
		x := mesh.WrapStored("test", n, "it is on a disk", tensor.Int32, []int{rows, width}, layout.Shard(0))
		if offset, ok := x.Offset(); ok {
			n.first = offset[0]
		}
		state = &checkpoint.State{}
		state.AddTensor("x", x)
		return state
	}
	run := func(ranks int, f func(ctx context.Context, world *comm.Comm, mesh *dtensor.Mesh) error) {
		commtest.Run(t, ranks, func(ctx context.Context, world *comm.Comm) error {
			mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "tp", Size: ranks})
			if err != nil {
				return err
			}
			return f(ctx, world, mesh)
		})
	}
	run(2, func(ctx context.Context, world *comm.Comm, mesh *dtensor.Mesh) error {
		store, err := checkpoint.Open(ctx, world, dir, checkpoint.Options{})
		if err != nil {
			return err
		}
		if err := errors.Join(store.Save(ctx, 1, state(mesh, &numbered{bad: -1})), store.Wait()); err != nil {
			return err
		}
		bad := -1
		if world.Rank() == 1 {
			bad = 8400
		}
		err = errors.Join(store.Save(ctx, 2, state(mesh, &numbered{bad: bad})), store.Wait())
		if err == nil || !strings.Contains(err.Error(), `rank 1: tensor "x": row 16900 is damaged`) {
			return fmt.Errorf("a damaged row: %w", err)
		}
		return nil
	})
	run(1, func(ctx context.Context, world *comm.Comm, mesh *dtensor.Mesh) error {
		n := &numbered{bad: -1, got: make([]byte, 0, rows*width*4)}
		if err := checkpoint.Load(ctx, world, filepath.Join(dir, "step-000001"), state(mesh, n), checkpoint.LoadOptions{}); err != nil {
			return err
		}
		if len(n.got) != rows*width*4 {
			return fmt.Errorf("%d bytes were loaded", len(n.got))
		}
		for i := 0; i < len(n.got); i += 4 {
			if got := binary.LittleEndian.Uint32(n.got[i:]); got != uint32(i/4) {
				return fmt.Errorf("element %d is %d", i/4, got)
			}
		}
		return nil
	})
	run(3, func(ctx context.Context, world *comm.Comm, mesh *dtensor.Mesh) error { // rows that are dealt out in turn
		n := &numbered{width: width}
		inTurn := &checkpoint.State{}
		inTurn.AddTensor("x", mesh.WrapStored("test", n, "it is on a disk", tensor.Int32, []int{rows, width}, layout.ShardCyclic()))
		if err := checkpoint.Load(ctx, world, filepath.Join(dir, "step-000001"), inTurn, checkpoint.LoadOptions{}); err != nil {
			return err
		}
		if want := (rows + 2 - world.Rank()) / 3 * width * 4; len(n.got) != want {
			return fmt.Errorf("%d bytes were loaded, want %d", len(n.got), want)
		}
		for i := 0; i < len(n.got); i += 4 {
			row := world.Rank() + i/4/width*3
			if got, want := binary.LittleEndian.Uint32(n.got[i:]), uint32(row*width+i/4%width); got != want {
				return fmt.Errorf("row %d has %d, want %d", row, got, want)
			}
		}
		store, err := checkpoint.Open(ctx, world, dir, checkpoint.Options{})
		if err != nil {
			return err
		}
		err = errors.Join(store.Save(ctx, 3, inTurn), store.Wait())
		if err == nil || !strings.Contains(err.Error(), "has no method InBlocks; give it one, or use Shard(0)") {
			return fmt.Errorf("saved in turn: %w", err)
		}
		return nil
	})
}
