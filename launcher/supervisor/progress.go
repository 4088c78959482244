package supervisor

import (
	"fmt"
	"time"
)

// ShortLife is how soon after its start an attempt must not fail, unless it has saved something: it would fail in the same way again.
const ShortLife = 10 * time.Second

// TooOften is what is said of a job that is not started again, with the number of attempts and --max-restarts; TooShort of one that
// failed within ShortLife.
const TooOften = "not starting the job again: it has failed %d times (--max-restarts %d)"
const TooShort = "not starting the job again: it failed within %v of its start and had saved nothing (see runtime.Saved)"

// maxBarren is how many attempts in a row may fail without a snapshot of a later step.
const maxBarren = 3

// Progress is how far the attempts of an elastic job have come.
type Progress struct {
	Best   int // the highest step that there was a snapshot of; -1: there was none
	barren int // attempts in a row without one of a higher step
}

// Failed counts an attempt, after which the last snapshot is that of a step; -1: there is none.
func (p *Progress) Failed(step int) {
	p.barren++
	if step > p.Best {
		p.Best, p.barren = step, 0
	}
}

// Saved says that the last attempt has saved something else than a snapshot.
func (p *Progress) Saved() { p.barren = 0 }

// Barren returns why there is to be no further attempt, "" if there may be one.
func (p *Progress) Barren() string {
	switch {
	case p.barren < maxBarren:
		return ""
	case p.Best < 0:
		return fmt.Sprintf("%d attempts in a row have failed and had saved nothing", maxBarren)
	}
	return fmt.Sprintf("%d attempts in a row have come no further than the snapshot of step %d", maxBarren, p.Best)
}
