package main

import (
	"context"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/bench/internal/measure"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
)

func TestEveryCaseRuns(t *testing.T) {
	seen := map[string]bool{}
	commtest.Run(t, 3, func(ctx context.Context, world *comm.Comm) error {
		show := func(r measure.Result) error {
			if seen[r.Name] || r.NP != 3 || r.NS <= 0 {
				t.Errorf("%+v", r)
			}
			seen[r.Name] = true
			return nil
		}
		return measure.Run(ctx, world, measure.Options{Budget: time.Millisecond}, show, func(b *measure.Bench) error {
			return run(b, []size{{11, 5, 8}})
		})
	})
	if len(seen) != 10 {
		t.Errorf("%d cases, want %d: %v", len(seen), 10, seen)
	}
}
