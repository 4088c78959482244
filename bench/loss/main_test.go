package main

import (
	"testing"

	"github.com/gorun-spmd/gorun/bench/internal/measure"
	"github.com/gorun-spmd/gorun/bench/internal/measuretest"
	"github.com/gorun-spmd/gorun/tensor"
)

func TestEveryCaseRuns(t *testing.T) {
	for _, dt := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
		measuretest.Run(t, 6, func(b *measure.Bench) error {
			err := crossEntropy(b, dt, []size{{4, 11}})
			if err != nil {
				return err
			}
			return linear(b, dt, []size{{4, 11}}, 5)
		})
	}
}
