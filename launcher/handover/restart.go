//go:build linux

package handover

import (
	"cmp"
	"time"

	"github.com/gorun-spmd/gorun/launcher/supervisor"
)

// again prepares h for its next attempt; the first one began at a time.
func (h *Handover) again(began time.Time) {
	if h.number > 0 {
		h.spent, h.failed, h.unreached, h.unplaced, h.lingered = time.Since(began)-h.suspended, 0, 0, 0, 0
	}
}

// mayGoOn reports whether an attempt ended in a way after which there may be another.
func mayGoOn(o *supervisor.Outcome) bool {
	switch o.Reason {
	case supervisor.Finished, supervisor.Failed, supervisor.Hung, supervisor.Lost:
		return o.Signal == 0
	}
	return false
}

// restartsLeft reports whether --max-restarts allows one more, and says so if it does not.
func (h *Handover) restartsLeft(say func(format string, args ...any)) bool {
	if h.number < h.opts.Restarts {
		return true
	}
	say(supervisor.TooOften, h.number+1, h.opts.Restarts)
	return false
}

// repeats decides, after an attempt that began at start and failed, whether another follows on the same hosts. It says what it does.
func (h *Handover) repeats(start time.Time, say func(format string, args ...any)) bool {
	if !h.restartsLeft(say) {
		return false
	}
	unreached, _, _ := h.words.unreached(h.list.hosts)
	failed, saved := h.words.outcome()
	life := cmp.Or(failed, time.Now()).Sub(start)
	switch {
	case unreached != "":
		say("not starting the job again: %s cannot be reached", unreached)
		return false
	case life < supervisor.ShortLife && !saved:
		say(supervisor.TooShort, supervisor.ShortLife)
		return false
	}
	say("starting the job again, restart %d of %d", h.number+1, h.opts.Restarts)
	return true
}

// outcome returns when a rank was first heard to have failed, zero if none was, and whether one had saved what the job can be resumed
// from.
func (w *words) outcome() (failed time.Time, saved bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed, w.saved
}
