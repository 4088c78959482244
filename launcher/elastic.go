//go:build linux

package launcher

import (
	"fmt"
	"os"
	"time"

	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/snapshot"
	"github.com/gorun-spmd/gorun/launcher/exit"
	"github.com/gorun-spmd/gorun/launcher/options"
	"github.com/gorun-spmd/gorun/launcher/supervisor"
)

// elasticGrace is what the ranks of an elastic job have, after one has failed, to say why
// others did: its next attempt goes on from memory, so they have nothing to save.
const elasticGrace = 300 * time.Millisecond

// An elastic job goes on after a failure, from snapshots in memory. A nil one does not.
type elastic struct {
	file     *os.File // the memory
	progress supervisor.Progress
	ranks    int // that have come this far
}

// newElastic makes the memory of --elastic; nil if that was not given.
func newElastic(o *options.Options) (*elastic, error) {
	if o.Elastic == "" {
		return nil, nil
	}
	f, err := snapshot.Create()
	if err != nil {
		return nil, exit.Remedied(err)
	}
	return &elastic{file: f, progress: supervisor.Progress{Best: -1}, ranks: o.Size()}, nil
}

func (e *elastic) close() {
	if e != nil {
		e.file.Close()
	}
}

// step returns that of the last complete snapshot; ok is false if there is none.
func (e *elastic) step() (step int, ok bool) {
	if e == nil {
		return 0, false
	}
	last, ok, err := snapshot.Last(e.file)
	return last.Step, ok && err == nil
}

// goesOn reports, once after each attempt, whether another may follow: one of the last few
// has made progress, which is a snapshot of a later step or, while there is none, something
// else that was saved.
func (e *elastic) goesOn(saved bool) bool {
	step, ok := e.step()
	if !ok {
		step = -1
	}
	e.progress.Failed(step)
	if !ok && saved {
		e.progress.Saved()
	}
	return e.progress.Barren() == ""
}

// goesOn reports whether the elastic job may be started again after an attempt whose first
// failure was f, and says why not.
func (a *attempt) goesOn(f failure, o *supervisor.Outcome) bool {
	_, ok := a.elastic.step()
	n := len(a.plan.ranks)
	if a.reached < 0 && f.text != "" && !o.Ends[f.rank].Status.Signaled() { // as for a wrong flag
		switch {
		case !ok:
			a.console.Say("not starting the job again: a rank failed by its own word before its first step")
			return false
		case n != a.elastic.ranks:
			a.console.Say("not starting the job again: on %s the program failed by its own word before its first step; it ran on %d",
				ints.Counted(n, "rank"), a.elastic.ranks)
			return false
		}
	}
	if a.reached >= 0 {
		a.elastic.ranks = n
	}
	if a.elastic.goesOn(a.saved()) {
		return true
	}
	a.console.Say("not starting the job again: %s", a.elastic.progress.Barren())
	return false
}

// resize is the supervisor's: it reports whether another number of ranks is wanted.
func (a *attempt) resize() bool {
	return supervisor.Resizes(a.elastic.file, len(a.plan.ranks), a.opts.Grace, func(wanted int) string {
		switch {
		case len(a.opts.Apps) > 1:
			return "with several programs nothing says which of them is to have them"
		case a.opts.Output != "" && wanted > a.opts.Size():
			return fmt.Sprintf("--output has files for %d", a.opts.Size())
		}
		return ""
	}, a.console.Say)
}

// nextRanks returns how many ranks the next attempt has: as many as are wanted; else, if the job
// shrinks, without those that a signal or the watchdog has ended first, and one fewer in any case.
func (a *attempt) nextRanks(o *supervisor.Outcome) int {
	n := len(a.plan.ranks)
	if a.elastic == nil {
		return n
	}
	if wanted, err := snapshot.Wanted(a.elastic.file); err == nil && wanted > 0 && o.Reason == supervisor.Resized {
		return wanted
	}
	if a.opts.Elastic != options.ElasticShrink || o.Reason != supervisor.Failed && o.Reason != supervisor.Hung {
		return n
	}
	lost := 0
	for r := range o.Ends {
		if e := &o.Ends[r]; e.Bad() && !e.Asked && e.Status.Signaled() {
			lost++
		}
	}
	return max(n-max(1, lost), min(n, max(1, a.opts.MinRanks)))
}
