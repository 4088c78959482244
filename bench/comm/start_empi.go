//go:build empi && mpi

package main

import (
	"context"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/empi"
)

// start runs f on this rank of mpirun.
func start(f func(context.Context, *comm.Comm) error) {
	r, err := empi.Open(0)
	if err != nil {
		panic(err)
	}
	if err := r.Close(f(context.Background(), comm.NewWorld(r))); err != nil {
		panic(err)
	}
}
