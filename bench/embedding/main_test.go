package main

import (
	"testing"

	"github.com/gorun-spmd/gorun/bench/internal/measure"
	"github.com/gorun-spmd/gorun/bench/internal/measuretest"
)

func TestEveryCaseRuns(t *testing.T) {
	measuretest.Run(t, 49, func(b *measure.Bench) error {
		if err := run(b, []size{{11, 5, 8}}); err != nil {
			return err
		}
		if err := runDynamic(b, []size{{11, 5, 8}}); err != nil {
			return err
		}
		if err := runKeys(b, 100, 16); err != nil {
			return err
		}
		if err := runStored(b, []storedSize{{600, 6, 2, 4, 3, 5}}); err != nil {
			return err
		}
		if err := runDLRM(b, dlrmSize{11, 6, 8}, 2); err != nil {
			return err
		}
		if err := runEstimates(b, []dlrmSize{{11, 6, 8}}, 2); err != nil {
			return err
		}
		return runBags(b, []bagSize{{1, 11, 6, 8, 3}, {5, 11, 6, 8, 3}})
	})
}
