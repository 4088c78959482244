// Command disagree is programs whose ranks do not make the same calls.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/runtime"
	"github.com/gorun-spmd/gorun/tensor"
)

func main() { runtime.Main(run) }

func run(ctx context.Context, world *comm.Comm) error {
	mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: world.Size()})
	if err != nil {
		return err
	}
	for step := 0; !runtime.Stopping(ctx, world); step++ {
		runtime.SetStep(ctx, step)
		switch os.Args[1] {
		case "skip":
			err = skip(ctx, world, os.Args[2])
		case "uneven":
			err = uneven(ctx, mesh)
		case "terms":
			err = terms(ctx, mesh)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// skip leaves out a call on one rank.
func skip(ctx context.Context, world *comm.Comm, text string) error {
	rank, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("disagree: %w", err)
	}
	grads := make([]float32, 100)
	if world.Rank() != rank {
		if err := comm.AllReduce(ctx, world, grads, comm.Sum); err != nil { // the others
			return err
		}
	}
	return comm.Barrier(ctx, world) // the one
}

// terms sums tensors of 8 elements on rank 0 and of 9 on the others: the sums have one shape.
func terms(ctx context.Context, mesh *dtensor.Mesh) error {
	return dtensor.Try(ctx, mesh, func() {
		x := dtensor.Zeros(mesh, tensor.Float32, []int{8 + min(1, mesh.Comm().Rank())}, layout.Shard(0))
		x.Sum(nil, false).Item() // of all
	})
}

// uneven gathers shards of two rows, except for the last rank, which has one row and makes another call.
func uneven(ctx context.Context, mesh *dtensor.Mesh) error {
	n := mesh.Size()
	shard := dtensor.Zeros(mesh, tensor.Int64, []int{2*n - 1}, layout.Shard(0))
	mine, all := tensor.ToSlice[int64](shard.Local()), make([]int64, 2*n)
	if len(mine) == 2 {
		return comm.AllGather(ctx, mesh.Comm(), all, mine) // a full shard
	}
	counts := slices.Repeat([]int{2}, n)
	counts[n-1] = 1
	return comm.AllGatherV(ctx, mesh.Comm(), all[:2*n-1], mine, counts) // the rest
}
