package main

import (
	"context"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
)

func TestEveryBenchmarkRuns(t *testing.T) {
	var seen []result
	commtest.Run(t, 3, func(ctx context.Context, world *comm.Comm) error {
		for _, heap := range []bool{true, false} {
			err := measureAll(ctx, world, setting{largest: 64, heap: heap, budget: time.Millisecond}, func(r result) error {
				if world.Rank() == 0 {
					seen = append(seen, r)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if len(seen) != 2*len(benchmarks()) {
		t.Fatalf("%d results of %d benchmarks", len(seen), len(benchmarks()))
	}
	for _, r := range seen {
		if r.NP != 3 || r.NS <= 0 || r.LoopNS <= 0 || (r.Bytes == 12) != (r.Name != "barrier") {
			t.Errorf("%+v", r)
		}
	}
}
