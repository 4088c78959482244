//go:build gompi

package main

import (
	"context"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/gompi"
)

// start runs f on this rank of mpirun.
func start(f func(context.Context, *comm.Comm) error) {
	r, err := gompi.Open(0)
	if err != nil {
		panic(err)
	}
	if err := r.Close(f(context.Background(), comm.NewWorld(r))); err != nil {
		panic(err)
	}
}
