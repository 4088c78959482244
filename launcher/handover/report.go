//go:build linux

package handover

import (
	"cmp"
	"fmt"
	"syscall"

	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/launcher/exit"
	"github.com/gorun-spmd/gorun/launcher/phrase"
	"github.com/gorun-spmd/gorun/launcher/supervisor"
)

// report says how the job ended, if not well, and returns gorun's exit status.
func (h *Handover) report(o *supervisor.Outcome, name string) int {
	if len(o.Late) > 0 {
		h.console.Say("%s did not end within %v and had to be killed", name, h.opts.Grace)
	}
	switch o.Reason {
	case supervisor.Finished:
		if text, status, ok := h.failure(); ok {
			h.console.Say("%s, though %s ended well", text, name)
			return cmp.Or(status, 1)
		}
		if h.throughShell() && h.words.voiceless() {
			h.console.Say("no rank has started, though %s ended well; start the job again", name)
			return exit.Lost
		}
		return h.wellEnded(o)
	case supervisor.Hung:
		if it, ok := h.words.first(); ok && it.Kind == job.Ended {
			text, status, _ := h.failure()
			h.console.Say("%s; %s lets the others go on, which were ended", text, name)
			return status
		}
		return exit.Lost
	case supervisor.Interrupted:
		if text, status, ok := h.failure(); ok && o.Passed { // the launcher's signal, for the rank that failed
			h.console.Say("%s", text)
			return cmp.Or(status, 1)
		}
		return 128 + int(o.Signal)
	case supervisor.Resized:
		return 0
	case supervisor.TooLate:
		return exit.TimedOut
	case supervisor.Closed:
		return exit.Closed
	case supervisor.Lost:
		h.console.Say("the guardian process was killed, and %s with it", name)
		return exit.Lost
	case supervisor.Refused:
		h.console.Say("cannot start %s: %v", name, o.Errno)
		if o.Errno == syscall.ENOENT {
			return exit.NotFound
		}
		return exit.NotExecutable
	}
	said := supervisor.Describe(o.Ends[0].Status, supervisor.PerhapsMemory)
	if text, status, ok := h.failure(); ok {
		h.console.Say("%s; %s: %s", text, name, said)
		return cmp.Or(status, o.Ends[0].ExitStatus())
	}
	if h.words.allWell(h.opts.Size()) { // MPI libraries and launchers trip over each other at the end
		status := h.wellEnded(o)
		if status == 0 {
			h.console.Say("%s: %s, when all ranks had ended well", name, said)
		}
		return status
	}
	if _, text, _ := h.words.unreached(h.list.hosts); text != "" {
		said += "; " + text
	}
	h.console.Say("the job failed: %s: %s", name, said)
	return o.Ends[0].ExitStatus()
}

// wellEnded is gorun's exit status when no rank has failed: 0, unless a signal that was not gorun's has asked them to end, as a batch
// system's before a time limit.
func (h *Handover) wellEnded(o *supervisor.Outcome) int {
	sig := h.words.signal()
	if sig == 0 {
		return 0
	}
	h.console.Say("%s had come to the ranks, not from gorun: they have stopped and ended", supervisor.SignalName(sig))
	o.Signal, o.Passed = sig, true
	return 128 + int(sig)
}

// failure says which rank failed, as far as the ranks have told; ok is false if
// none has told of a failure. status is the job's exit status by their words, 0 if
// only the launcher's says it: a rank that could not tell has failed, and others
// because of it.
func (h *Handover) failure() (text string, status int, ok bool) {
	if h.words == nil {
		return "", 0, false
	}
	it, told := h.words.first()
	silent := h.words.silent()
	switch {
	case told && (it.Kind == job.Ended || silent == ""):
		text = fmt.Sprintf("rank %d on %s failed: ", it.Rank, it.Host)
		if crash := h.words.crashed(it); crash != "" {
			text += crash + " "
		} else if it.Text != "" {
			text += phrase.OneLine(it.Text) + " "
		}
		return text + fmt.Sprintf("(exit code %d)", it.Status), it.Status, true
	case silent == "":
		return "", 0, false
	case told:
		silent += fmt.Sprintf("; rank %d on %s failed with it: %s", it.Rank, it.Host, phrase.OneLine(it.Text))
	}
	return "no last word from " + silent, 0, true
}
