package main

import (
	"testing"

	"github.com/gorun-spmd/gorun/bench/internal/measure"
	"github.com/gorun-spmd/gorun/bench/internal/measuretest"
	"github.com/gorun-spmd/gorun/tensor"
)

func TestEveryCaseRuns(t *testing.T) {
	for _, dt := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
		measuretest.Run(t, 94, func(b *measure.Bench) error { return run(b, dt, 7, 5) })
	}
}
