//go:build linux

package launcher

import (
	"testing"

	"github.com/gorun-spmd/gorun/internal/snapshot"
	"github.com/gorun-spmd/gorun/launcher/options"
)

// An elastic job goes on while its snapshots do, and is given up when a few attempts in a
// row have had no later one.
func TestElasticJobsNeedProgress(t *testing.T) {
	e, err := newElastic(&options.Options{Elastic: options.ElasticRestart})
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	for i, saved := range []bool{false, false, true, false, false} {
		if !e.goesOn(saved) {
			t.Errorf("attempt %d: it is given up", i)
		}
	}
	if e.goesOn(false) {
		t.Error("it goes on for ever without a snapshot")
	}
	keep := func(sequence, step int) {
		if err := snapshot.Begin(e.file, sequence, 0, step, 0, 1).Finish(nil); err != nil {
			t.Fatal(err)
		}
	}
	keep(1, 5)
	for i, want := range []bool{true, true, true, false} {
		if got := e.goesOn(true); got != want {
			t.Errorf("attempt %d: it goes on: %v", i, got)
		}
	}
	keep(2, 5) // the same step again is no progress
	if e.goesOn(true) {
		t.Error("it goes on at the same step")
	}
	keep(3, 6)
	if step, ok := e.step(); !e.goesOn(false) || step != 6 || !ok {
		t.Errorf("at step %d, %v, it does not go on", step, ok)
	}
}
