package main

import (
	"testing"

	"github.com/gorun-spmd/gorun/bench/internal/measure"
	"github.com/gorun-spmd/gorun/bench/internal/measuretest"
)

func TestEveryCaseRuns(t *testing.T) {
	measuretest.Run(t, 2*len(layers), func(b *measure.Bench) error { return run(b, layers, 4) })
}
