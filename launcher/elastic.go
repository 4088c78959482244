//go:build linux

package launcher

import (
	"os"

	"github.com/gorun-spmd/gorun/internal/snapshot"
	"github.com/gorun-spmd/gorun/launcher/exit"
	"github.com/gorun-spmd/gorun/launcher/options"
)

// maxBarren is how many attempts in a row may fail without a snapshot of a later step.
const maxBarren = 3

// An elastic job goes on after a failure, from snapshots in memory. A nil one does not.
type elastic struct {
	file   *os.File // the memory
	best   int      // the highest step that there was a snapshot of
	barren int      // attempts in a row without one of a higher step
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
	return &elastic{file: f, best: -1}, nil
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

// goesOn reports, once after each attempt, whether another may go on from a snapshot: one of
// the last few attempts has made progress.
func (e *elastic) goesOn() bool {
	if e == nil {
		return false
	}
	step, ok := e.step()
	e.barren++
	if ok && step > e.best {
		e.best, e.barren = step, 0
	}
	return ok && e.barren < maxBarren
}

// lost reports whether too many attempts have made no progress.
func (e *elastic) lost() bool { return e != nil && e.barren >= maxBarren }
