//go:build !gompi && !empi

package main

import (
	"context"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/runtime"
)

// start runs f on this rank, of whatever launcher.
func start(f func(context.Context, *comm.Comm) error) { runtime.Main(f) }
