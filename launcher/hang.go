//go:build linux

package launcher

import (
	"slices"
	"time"

	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/launcher/options"
	"github.com/gorun-spmd/gorun/launcher/phrase"
	"github.com/gorun-spmd/gorun/launcher/proc"
	"github.com/gorun-spmd/gorun/launcher/supervisor"
	"github.com/gorun-spmd/gorun/launcher/watchdog"
)

// maxStacks is of how many ranks the stacks are printed.
const maxStacks = 4

// look is the supervisor's: it looks for a hang, and describes the one it finds.
func (a *attempt) look(w *watchdog.Watchdog) (laggards []int, hung bool) {
	now := time.Now()
	h := w.Look(now, len(a.plan.ranks))
	if h == nil {
		return nil, false
	}
	more := ""
	if len(h.Laggards) > 0 {
		shown := h.Laggards[:min(maxStacks, len(h.Laggards))]
		more = "; the stacks of " + phrase.Ranks(slices.Sorted(slices.Values(shown))) + ":"
		laggards = shown
	}
	a.console.Write(a.console.Name() + ": the job hangs: " + h.Why() + "\n" + h.Table(a.segment, now) + a.console.Name() + ": ending it" +
		more + "\n")
	return laggards, true
}

// newWatchdog watches the ranks that sup supervises.
func (a *attempt) newWatchdog(sup *supervisor.Supervisor) *watchdog.Watchdog {
	buf := make([]byte, 1024)
	return &watchdog.Watchdog{
		Limit: a.opts.HangTimeout, Always: a.opts.HangGiven, Circles: a.opts.OnDeadlock == options.DeadlockEnds, Alone: true,
		See: func(r int) watchdog.Sighting {
			s := watchdog.Sighting{Waiting: a.segment.Waiting(r), Calls: a.segment.Calls(r), Moves: a.segment.Moves(r), Ended: sup.Ends[r].Ended}
			s.Last, _ = a.segment.LastCall(r)
			s.Step, _ = a.segment.Step(r)
			s.Saved, s.Joined = a.segment.Saved(r), a.segment.State(r) != control.Starting
			if p, ok := proc.Read(sup.Ends[r].PID, buf); ok {
				s.Stopped = p.State == 'T' || p.State == 't'
			}
			return s
		},
		Busy: func(ranks []int) bool {
			pids := make([]int, len(ranks))
			for i, r := range ranks {
				pids[i] = sup.Ends[r].PID
			}
			return proc.Busy(pids)
		},
		Ask:       a.segment.Ask,
		OnlyWaits: a.segment.OnlyWaits,
	}
}
