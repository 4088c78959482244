//go:build linux

package launcher

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/launcher/options"
	"github.com/gorun-spmd/gorun/launcher/stdio"
	"github.com/gorun-spmd/gorun/launcher/supervisor"
)

// attempts carries out the plan, and as often again as --max-restarts allows and
// there is hope. It returns gorun's exit status.
func attempts(o *options.Options, planFor func(ranks int) *plan, c *stdio.Console, d *dashboard, signals <-chan os.Signal) (status int,
	err error) {
	began := time.Now()
	id := fmt.Sprintf("%d-%s", os.Getpid(), strconv.FormatInt(began.UnixNano(), 36))
	e, err := newElastic(o)
	if err != nil {
		return 0, err
	}
	defer e.close()
	ranks := o.Size()
	suspended := time.Duration(0)
	for n := 0; ; n++ {
		a := &attempt{opts: o, plan: planFor(ranks), console: c, number: n, id: id, dashboard: d, elastic: e}
		if n > 0 {
			a.spent = time.Since(began) - suspended
		}
		status, again, err := a.carryOut(signals)
		if err != nil || !again {
			return status, err
		}
		suspended += a.suspended
		with := ""
		if a.next != ranks {
			with = " with " + ints.Counted(a.next, "rank")
		}
		ranks = a.next
		c.Say("starting the job again%s, restart %d%s", with, n+1, a.from())
	}
}

// from says what the next attempt goes on from.
func (a *attempt) from() string {
	step, ok := a.elastic.step()
	switch {
	case a.elastic == nil:
		return fmt.Sprintf(" of %d", a.opts.Restarts)
	case !ok:
		return "; no snapshot is whole, so ranks without a checkpoint begin anew"
	case a.reached < step: // a rank begins step s when s are made
		return fmt.Sprintf(", from the snapshot of step %d", step)
	}
	return fmt.Sprintf(", from the snapshot of step %d; %s made again", step, were(a.reached-step+1))
}

// were is "1 step is" or "3 steps are".
func were(steps int) string {
	if steps == 1 {
		return "1 step is"
	}
	return fmt.Sprintf("%d steps are", steps)
}

// furthest is the last step that a rank has begun, -1 if none has.
func (a *attempt) furthest() int {
	furthest := -1
	for r := range a.plan.ranks {
		if step, ok := a.segment.Step(r); ok {
			furthest = max(furthest, step)
		}
	}
	return furthest
}

// carryOut is one attempt from start to end; again reports whether there should be
// another.
func (a *attempt) carryOut(signals <-chan os.Signal) (status int, again bool, err error) {
	defer a.end()
	o, err := a.run(signals)
	if err != nil {
		return 0, false, err
	}
	status, a.reached, a.suspended = a.report(o), a.furthest(), o.Suspended
	a.pumping.Wait(o, signals, 0)
	if lost := a.writeTrace(o); status == 0 {
		status = lost
	}
	again = a.again(o)
	if again {
		a.next = a.nextRanks(o)
	}
	return status, again, nil
}

// again reports whether the job may be started again, and says why not if the
// user might wonder.
func (a *attempt) again(o *supervisor.Outcome) bool {
	if o.Reason == supervisor.Resized && o.Signal == 0 {
		return true
	}
	wanted := a.opts.Restarts > 0 || a.elastic != nil
	if !wanted || o.Reason != supervisor.Failed && o.Reason != supervisor.Hung && o.Reason != supervisor.Lost {
		return false
	}
	alive := func(e supervisor.End) bool { return e.Started && !e.Ended }
	switch {
	case o.Signal != 0:
		a.console.Say("not starting the job again: %s has come", supervisor.SignalName(o.Signal))
		return false
	case a.number >= a.opts.Restarts && (a.elastic == nil || a.opts.Restarts > 0):
		a.console.Say(supervisor.TooOften, a.number+1, a.opts.Restarts)
		return false
	case o.Reason != supervisor.Lost && slices.ContainsFunc(o.Ends, alive):
		a.console.Say("not starting the job again: processes of this attempt are left")
		return false
	}
	life := time.Since(a.started)
	f, ok := first(o.Ends, a.started, a.segment.Error)
	if ok {
		life = f.at.Sub(a.started)
	}
	if a.elastic != nil {
		return a.goesOn(f, o)
	}
	if life < supervisor.ShortLife && !a.saved() {
		a.console.Say(supervisor.TooShort, supervisor.ShortLife)
		return false
	}
	return true
}

// saved reports whether some rank has saved what another attempt can resume from.
func (a *attempt) saved() bool {
	for r := range a.plan.ranks {
		if at := a.segment.Saved(r); at.After(a.started) && at.Before(time.Now()) {
			return true
		}
	}
	return false
}
