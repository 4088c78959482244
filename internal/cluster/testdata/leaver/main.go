// Command leaver is a job of which rank 1 calls os.Exit(0) while the others wait for it:
//
//	leaver FILE    makes FILE when it leaves
package main

import (
	"context"
	"os"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/runtime"
)

func main() { runtime.Main(leave) }

func leave(ctx context.Context, world *comm.Comm) error {
	if err := comm.Barrier(ctx, world); err != nil {
		return err
	}
	if world.Rank() == 1 {
		if err := os.WriteFile(os.Args[1], nil, 0o600); err != nil {
			return err
		}
		os.Exit(0)
	}
	return comm.Barrier(ctx, world)
}
