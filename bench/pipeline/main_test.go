package main

import (
	"testing"

	"github.com/gorun-spmd/gorun/bench/internal/measure"
	"github.com/gorun-spmd/gorun/bench/internal/measuretest"
)

func TestEveryCaseRuns(t *testing.T) {
	measuretest.Run(t, 1, func(b *measure.Bench) error { return run(b, size{B: 1, T: 4, C: 8, Parts: 2}) })
}
