package checkpoint_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gorun-spmd/gorun/checkpoint"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// A run of 6 steps is cut off after 4 on two ranks, and goes on with three.
func Example() {
	root, err := os.MkdirTemp("", "checkpoint")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(root)

	run := func(ctx context.Context, world *comm.Comm, steps int) error {
		mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: world.Size()})
		if err != nil {
			return err
		}
		w := dtensor.Zeros(mesh, tensor.Float32, []int{5, 2}, layout.Shard(0)) // [5, 2] S(0)
		var state checkpoint.State
		state.AddTensor("w", w)

		store, err := checkpoint.Open(ctx, world, root, checkpoint.Options{Keep: 2})
		if err != nil {
			return err
		}
		first, resumed, err := store.Resume(ctx, &state)
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Printf("%d ranks: resumed %v, from step %d\n", world.Size(), resumed, first)
		}
		for step := first; step < steps; step++ {
			tensor.AddTo(w.Local(), tensor.Full(mesh.Device(), tensor.Float32, 1, w.LocalShape()...))
			if (step+1)%2 == 0 {
				if err := store.Save(ctx, step+1, &state); err != nil {
					return err
				}
			}
		}
		whole := w.Full()
		if world.Rank() == 0 {
			fmt.Println("w =", tensor.Data[float32](whole))
		}
		return store.Wait()
	}

	for _, c := range []struct{ ranks, steps int }{{2, 4}, {3, 6}} {
		for _, err := range commtest.Ranks(context.Background(), c.ranks, func(ctx context.Context, world *comm.Comm) error {
			return run(ctx, world, c.steps)
		}) {
			if err != nil {
				fmt.Println(err)
			}
		}
	}
	all, err := checkpoint.List(root)
	for _, e := range all {
		fmt.Println("step", e.Step)
	}
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// 2 ranks: resumed false, from step 0
	// w = [4 4 4 4 4 4 4 4 4 4]
	// 3 ranks: resumed true, from step 4
	// w = [6 6 6 6 6 6 6 6 6 6]
	// step 4
	// step 6
}

// Two ranks write a model in one file that other programs read, and three read it.
func ExampleExport() {
	dir, err := os.MkdirTemp("", "checkpoint")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	path := filepath.Join(dir, "model.safetensors")
	model := func(world *comm.Comm, v float64) (w *dtensor.Tensor, state *checkpoint.State, err error) {
		mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "tp", Size: world.Size()})
		if err != nil {
			return nil, nil, err
		}
		w = dtensor.Full(mesh, tensor.Float32, v, []int{5, 2}, layout.Shard(0)) // [5, 2] S(0)
		state = new(checkpoint.State)
		state.AddTensor("head.weight", w)
		return w, state, nil
	}
	ranks := func(n int, f func(ctx context.Context, world *comm.Comm) error) {
		for _, err := range commtest.Ranks(context.Background(), n, f) {
			if err != nil {
				fmt.Println(err)
			}
		}
	}
	ranks(2, func(ctx context.Context, world *comm.Comm) error {
		_, state, err := model(world, 1.5)
		if err != nil {
			return err
		}
		return checkpoint.Export(ctx, world, path, state, checkpoint.ExportOptions{Metadata: map[string]string{"format": "pt"}})
	})
	list, err := checkpoint.Tensors(path)
	fmt.Println(list, err)
	ranks(3, func(ctx context.Context, world *comm.Comm) error {
		w, state, err := model(world, 0)
		if err != nil {
			return err
		}
		if err := checkpoint.Load(ctx, world, path, state, checkpoint.LoadOptions{}); err != nil {
			return err
		}
		if world.Rank() == 2 {
			fmt.Println(w.Layout(), w.Local())
		}
		return nil
	})
	// Output:
	// [{head.weight float32 [5 2]}] <nil>
	// [5, 2] S(0) float32[1 2]{1.5 1.5}
}
