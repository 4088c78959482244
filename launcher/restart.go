//go:build linux

package launcher

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/gorun-spmd/gorun/launcher/options"
	"github.com/gorun-spmd/gorun/launcher/stdio"
	"github.com/gorun-spmd/gorun/launcher/supervisor"
)

// shortLife is how soon after its start an attempt must not fail, unless it has
// saved something: it would fail in the same way again.
const shortLife = 10 * time.Second

// attempts carries out the plan, and as often again as --max-restarts allows and
// there is hope. It returns gorun's exit status.
func attempts(o *options.Options, p *plan, c *stdio.Console, d *dashboard, signals <-chan os.Signal) (status int, err error) {
	began := time.Now()
	id := fmt.Sprintf("%d-%s", os.Getpid(), strconv.FormatInt(began.UnixNano(), 36))
	e, err := newElastic(o)
	if err != nil {
		return 0, err
	}
	defer e.close()
	for n := 0; ; n++ {
		a := &attempt{opts: o, plan: p, console: c, number: n, id: id, dashboard: d, elastic: e}
		if n > 0 {
			a.spent = time.Since(began)
		}
		status, again, err := a.carryOut(signals)
		if err != nil || !again {
			return status, err
		}
		switch step, ok := e.step(); {
		case e == nil:
			c.Say("starting the job again, restart %d of %d", n+1, o.Restarts)
		case ok:
			c.Say("starting the job again, restart %d, from the snapshot of step %d", n+1, step)
		default:
			c.Say("starting the job again, restart %d; there is no snapshot yet", n+1)
		}
	}
}

// carryOut is one attempt from start to end; again reports whether there should be
// another.
func (a *attempt) carryOut(signals <-chan os.Signal) (status int, again bool, err error) {
	defer a.end()
	o, err := a.run(signals)
	if err != nil {
		return 0, false, err
	}
	status = a.report(o)
	a.pumping.Wait(o, signals, 0)
	if lost := a.writeTrace(o); status == 0 {
		status = lost
	}
	return status, a.again(o), nil
}

// again reports whether the job may be started again, and says why not if the
// user might wonder.
func (a *attempt) again(o *supervisor.Outcome) bool {
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
		a.console.Say("not starting the job again: it has failed %d times (--max-restarts %d)", a.number+1, a.opts.Restarts)
		return false
	case o.Reason != supervisor.Lost && slices.ContainsFunc(o.Ends, alive):
		a.console.Say("not starting the job again: processes of this attempt are left")
		return false
	}
	life := time.Since(a.started)
	if f, ok := first(o.Ends, a.started, a.segment.Error); ok {
		life = f.at.Sub(a.started)
	}
	if a.elastic.goesOn() {
		return true
	}
	if a.elastic.lost() || life < shortLife && !a.saved() {
		a.console.Say("not starting the job again: it failed within %v of its start and had saved nothing (see runtime.Saved)", shortLife)
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
