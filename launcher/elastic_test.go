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
	if e.goesOn() || e.lost() {
		t.Error("it goes on without a snapshot, or is given up at once")
	}
	keep := func(sequence, step int) {
		if err := snapshot.Begin(e.file, sequence, 0, step, 0, 1).Finish(nil); err != nil {
			t.Fatal(err)
		}
	}
	keep(1, 5)
	for i, want := range []bool{true, true, true, false} {
		if got := e.goesOn(); got != want || e.lost() == want {
			t.Errorf("attempt %d: it goes on: %v, is given up: %v", i, got, e.lost())
		}
	}
	keep(2, 5) // the same step again is no progress
	if e.goesOn() {
		t.Error("it goes on at the same step")
	}
	keep(3, 6)
	if step, ok := e.step(); !e.goesOn() || e.lost() || step != 6 || !ok {
		t.Errorf("at step %d, %v, it does not go on", step, ok)
	}
	var none *elastic
	if none.goesOn() || none.lost() {
		t.Error("a job that is not elastic is")
	}
}
