package main

import (
	"testing"

	"github.com/gorun-spmd/gorun/bench/internal/measure"
	"github.com/gorun-spmd/gorun/bench/internal/measuretest"
)

func TestEveryCaseRuns(t *testing.T) {
	measuretest.Run(t, 10, func(b *measure.Bench) error {
		return run(b, []size{{11, 5, 8}})
	})
}
