package launcher

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A failure is one rank's, as it is reported.
type failure struct {
	rank int
	at   time.Time
	text string // what the rank said of it (see control.Segment.SetError); "" if nothing
}

// first returns the failure that came first. A rank's own word dates its failure
// earlier than its end, so that the rank that others failed after is found even if
// they ended before it. What a rank says is not trusted beyond that: the time must
// lie in the attempt's.
func first(ends []end, started time.Time, said func(rank int) (string, time.Time)) (failure, bool) {
	var best failure
	found := false
	for r := range ends {
		e := &ends[r]
		if !e.bad() {
			continue
		}
		f := failure{rank: r, at: e.at}
		text, at := said(r)
		if text != "" {
			f.text = text
			if at.After(started) && at.Before(e.at) {
				f.at = at
			}
		} else if e.asked {
			continue
		}
		if !found || f.at.Before(best.at) {
			best, found = f, true
		}
	}
	return best, found
}

// made reports whether the rank was made to end, by a signal or as package runtime
// does when it is told to; else it went its own way.
func (e *end) made() bool {
	return e.asked && (e.status.Signaled() || e.status.ExitStatus() == 128+int(unix.SIGTERM))
}

// exitStatus is that of a rank that failed: its own, or 128 and its signal's number.
func (e *end) exitStatus() int {
	switch {
	case e.made(): // it had failed by its own word
		return 1
	case e.status.Signaled():
		return 128 + int(e.status.Signal())
	default:
		return e.status.ExitStatus()
	}
}

// describe is "exit code 3" or "killed by SIGSEGV (segmentation fault)". An exit code by
// which a shell tells of a signal, as package runtime does, is given with its name.
func describe(s syscall.WaitStatus) string {
	if !s.Signaled() {
		text := fmt.Sprintf("exit code %d", s.ExitStatus())
		if name := unix.SignalName(syscall.Signal(s.ExitStatus() - 128)); name != "" {
			text += ", 128 + " + name
		}
		return text
	}
	text := fmt.Sprintf("killed by signal %d, %s (%v)", int(s.Signal()), signalName(s.Signal()), s.Signal())
	if s.Signal() == unix.SIGKILL {
		text += "; if nobody did that, memory ran out: see dmesg"
	}
	return text
}

// report prints how the attempt ended, if there is something to say, and returns
// gorun's exit status.
func (a *attempt) report(o *outcome) int {
	switch o.reason {
	case finished:
		return 0
	case interrupted:
		a.sayLate(o)
		return 128 + int(o.signal)
	case tooLate:
		a.sayLate(o)
		return timedOut
	case hung:
		a.sayLate(o)
		return hungJob
	case closed:
		return statusClosed
	case lost:
		a.console.say("the guardian process was killed, and all ranks with it")
		return lostChild
	case refused:
		return a.sayRefused(o)
	}
	f, ok := first(o.ends, a.started, a.segment.Error)
	if !ok {
		a.console.say("the job failed")
		return 1
	}
	a.headline(f, o)
	if rest := others(f.rank, o); rest != "" {
		a.console.say("%s", rest)
	}
	return o.ends[f.rank].exitStatus()
}

// headline says who failed first, and how.
func (a *attempt) headline(f failure, o *outcome) {
	e := &o.ends[f.rank]
	who := fmt.Sprintf("rank %d on %s", f.rank, a.plan.host)
	if len(a.plan.apps) > 1 {
		who = fmt.Sprintf("rank %d (%s) on %s", f.rank, a.plan.apps[a.plan.ranks[f.rank].app].Argv[0], a.plan.host)
	}
	switch {
	case f.text != "" && e.ended && !e.made():
		a.console.say("%s failed: %s (%s)", who, oneLine(f.text), describe(e.status))
	case f.text != "":
		a.console.say("%s failed: %s", who, oneLine(f.text))
	default:
		a.console.say("%s failed: %s", who, describe(e.status))
	}
	if f.text != "" && f.text != panicText {
		return // the tail of its output would say the same again
	}
	if lines := a.tails[f.rank].lines(); len(lines) > 0 {
		a.console.write("  its standard error, at the end:\n    " + strings.Join(lines, "\n    ") + "\n")
	}
}

// panicText is what runtime.Main says of a panic: its own output says the rest.
const panicText = "panic"

// oneLine joins the lines of text.
func oneLine(text string) string {
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ")
}

// others says in one line what became of the ranks beside the first that failed.
func others(firstRank int, o *outcome) string {
	var with, before, too, killed []int
	for r := range o.ends {
		e := &o.ends[r]
		switch {
		case r == firstRank || !e.started:
		case slices.Contains(o.late, r):
			killed = append(killed, r)
		case !e.bad() && !e.asked:
			before = append(before, r)
		case e.bad() && !e.asked:
			too = append(too, r)
		default:
			with = append(with, r)
		}
	}
	var parts []string
	if len(with) > 0 {
		parts = append(parts, naming(with)+" ended with it")
	}
	if len(too) > 0 {
		parts = append(parts, naming(too)+" failed too")
	}
	if len(before) > 0 {
		parts = append(parts, naming(before)+" had finished")
	}
	if len(killed) > 0 {
		parts = append(parts, naming(killed)+" did not end and had to be killed")
	}
	if len(parts) == 0 {
		return ""
	}
	return "of the others, " + strings.Join(parts, "; ")
}

// waiting is called when a job has failed and some ranks are slow to end.
func (a *attempt) waiting(o *outcome, left []int) {
	f, ok := first(o.ends, a.started, a.segment.Error)
	if !ok || len(left) == 0 {
		return
	}
	a.console.say("rank %d on %s failed; waiting %v more for %s to end", f.rank, a.plan.host, max(0, a.opts.grace-patience), naming(left))
}

// sayLate names the ranks that did not use the grace period.
func (a *attempt) sayLate(o *outcome) {
	if len(o.late) > 0 {
		a.console.say("%s did not end within %v and had to be killed", naming(o.late), a.opts.grace)
	}
}

// sayRefused says why a rank could not be started, and returns the exit status.
func (a *attempt) sayRefused(o *outcome) int {
	name := a.plan.apps[a.plan.ranks[o.rank].app].Argv[0]
	why, status := remedied(o.errno).Error(), 1
	switch o.errno {
	case unix.ENOEXEC:
		why, status = "not a program this system can run, nor a script that begins with #! (exec format error)", statusNotExecutable
	case unix.EACCES, unix.EPERM, unix.ETXTBSY, unix.EISDIR:
		status = statusNotExecutable
		if noExec(a.plan.apps[a.plan.ranks[o.rank].app].Path) {
			why = "the file system that it lies on is mounted noexec; put it on another"
		}
	case unix.ENOENT:
		status = statusNotFound
		if _, err := os.Stat(a.plan.apps[a.plan.ranks[o.rank].app].Path); err == nil {
			why, status = "the interpreter named in its first line, or its dynamic loader, does not exist", statusNotExecutable
		}
	}
	a.console.say("cannot start rank %d on %s: %s: %s", o.rank, a.plan.host, name, why)
	return status
}

// noExec reports whether path lies on a file system from which nothing may be executed.
func noExec(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && fs.Flags&unix.ST_NOEXEC != 0
}
