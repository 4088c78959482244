package main

import (
	"testing"

	"github.com/gorun-spmd/gorun/bench/internal/measure"
	"github.com/gorun-spmd/gorun/bench/internal/measuretest"
)

func TestEveryCaseRuns(t *testing.T) {
	measuretest.Run(t, 2, func(b *measure.Bench) error {
		return run(b, size{V: 11, T: 6, D: 5, H: 7})
	})
}
