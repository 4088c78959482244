// Package measuretest runs the cases of a benchmark program in its tests.
package measuretest

import (
	"context"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/bench/internal/measure"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
)

// Run runs a program's cases on three ranks; run should use small sizes. The test fails unless
// there are exactly cases cases, each with a name of its own and a result.
func Run(t *testing.T, cases int, run func(b *measure.Bench) error) {
	t.Helper()
	seen := map[string]bool{}
	commtest.Run(t, 3, func(ctx context.Context, world *comm.Comm) error {
		show := func(r measure.Result) error {
			if seen[r.Name] || r.NP != 3 || r.NS <= 0 {
				t.Errorf("%+v", r)
			}
			seen[r.Name] = true
			return nil
		}
		return measure.Run(ctx, world, measure.Options{Budget: time.Millisecond}, show, run)
	})
	if len(seen) != cases {
		t.Errorf("%d cases, want %d: %v", len(seen), cases, seen)
	}
}
