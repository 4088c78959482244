package main

import (
	"testing"

	"github.com/gorun-spmd/gorun/bench/internal/measure"
	"github.com/gorun-spmd/gorun/bench/internal/measuretest"
)

func TestEveryCaseRuns(t *testing.T) {
	measuretest.Run(t, 6, func(b *measure.Bench) error {
		err := crossEntropy(b, []size{{4, 11}})
		if err != nil {
			return err
		}
		return linear(b, []size{{4, 11}}, 5)
	})
}
