package main

import (
	"testing"

	"github.com/gorun-spmd/gorun/bench/internal/measure"
	"github.com/gorun-spmd/gorun/bench/internal/measuretest"
	"github.com/gorun-spmd/gorun/tensor"
)

func TestEveryCaseRuns(t *testing.T) {
	measuretest.Run(t, 2*len(layers), func(b *measure.Bench) error { return run(b, tensor.Float32, layers, 4) })
}
