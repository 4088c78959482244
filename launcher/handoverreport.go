package launcher

import (
	"cmp"
	"fmt"
	"syscall"

	"github.com/gorun-spmd/gorun/internal/job"
)

// lostHost is the exit status when a host was not heard of any more.
const lostHost = 1

// report says how the job ended, if not well, and returns gorun's exit status.
func (h *handover) report(o *outcome, name string) int {
	if len(o.late) > 0 {
		h.console.say("%s did not end within %v and had to be killed", name, h.opts.grace)
	}
	switch o.reason {
	case finished:
		if text, status, ok := h.failure(); ok {
			h.console.say("%s, though %s ended well", text, name)
			return cmp.Or(status, 1)
		}
		return 0
	case hung:
		if it, ok := h.words.first(); ok && it.Kind == job.Ended {
			text, status, _ := h.failure()
			h.console.say("%s; %s lets the others go on, which were ended", text, name)
			return status
		}
		return lostHost
	case interrupted:
		return 128 + int(o.signal)
	case tooLate:
		return timedOut
	case closed:
		return statusClosed
	case lost:
		h.console.say("the guardian process was killed, and %s with it", name)
		return lostChild
	case refused:
		h.console.say("cannot start %s: %v", name, o.errno)
		if o.errno == syscall.ENOENT {
			return statusNotFound
		}
		return statusNotExecutable
	}
	said := describe(o.ends[0].status)
	if text, status, ok := h.failure(); ok {
		h.console.say("%s; %s: %s", text, name, said)
		return cmp.Or(status, o.ends[0].exitStatus())
	}
	if h.words.allWell() { // MPI libraries and launchers trip over each other at the end
		h.console.say("%s: %s, when all ranks had ended well", name, said)
		return 0
	}
	h.console.say("the job failed: %s: %s", name, said)
	return o.ends[0].exitStatus()
}

// failure says which rank failed, as far as the ranks have told; ok is false if
// none has told of a failure. status is the job's exit status by their words, 0 if
// only the launcher's says it: a rank that could not tell has failed, and others
// because of it.
func (h *handover) failure() (text string, status int, ok bool) {
	if h.words == nil {
		return "", 0, false
	}
	it, told := h.words.first()
	silent := h.words.silent()
	switch {
	case told && (it.Kind == job.Ended || silent == ""):
		text = fmt.Sprintf("rank %d on %s failed: ", it.Rank, it.Host)
		if it.Text != "" {
			text += oneLine(it.Text) + " "
		}
		return text + fmt.Sprintf("(exit code %d)", it.Status), it.Status, true
	case silent == "":
		return "", 0, false
	case told:
		silent += fmt.Sprintf("; rank %d on %s failed with it: %s", it.Rank, it.Host, oneLine(it.Text))
	}
	return "no last word from " + silent, 0, true
}
