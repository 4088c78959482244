//go:build linux

package supervisor

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Made reports whether the rank was made to end, by a signal or as package runtime
// does when it is told to; else it went its own way.
func (e *End) Made() bool {
	return e.Asked && (e.Status.Signaled() || e.Status.ExitStatus() == 128+int(unix.SIGTERM))
}

// ExitStatus is that of a rank that failed: its own, or 128 and its signal's number.
func (e *End) ExitStatus() int {
	switch {
	case e.Made(): // it had failed by its own word
		return 1
	case e.Status.Signaled():
		return 128 + int(e.Status.Signal())
	default:
		return e.Status.ExitStatus()
	}
}

// PerhapsMemory is what is said of a SIGKILL of which nothing is known.
const PerhapsMemory = "if nobody did that, memory ran out: see dmesg"

// Describe is "exit code 3" or "killed by SIGSEGV (segmentation fault)". An exit code by
// which a shell tells of a signal, as package runtime does, is given with its name. memory is what is known of a SIGKILL.
func Describe(s syscall.WaitStatus, memory string) string {
	if !s.Signaled() {
		text := fmt.Sprintf("exit code %d", s.ExitStatus())
		if name := unix.SignalName(syscall.Signal(s.ExitStatus() - 128)); name != "" {
			text += ", 128 + " + name
		}
		return text
	}
	text := fmt.Sprintf("killed by signal %d, %s (%v)", int(s.Signal()), SignalName(s.Signal()), s.Signal())
	if s.Signal() == unix.SIGKILL {
		text += "; " + memory
	}
	return text
}

// An End is how one rank ended.
type End struct {
	PID     int // 0 before it started
	Started bool
	Ended   bool
	Status  syscall.WaitStatus
	At      time.Time
	CPU     time.Duration // that it and its children have taken
	Asked   bool          // after it was told to end
}

// Bad reports whether the rank failed, or was made to.
func (e *End) Bad() bool { return e.Ended && !(e.Status.Exited() && e.Status.ExitStatus() == 0) }

// An Outcome is how an attempt ended.
type Outcome struct {
	Reason Reason
	Signal syscall.Signal // the user's first one to end the job; 0 if none came
	Rank   int            // refused: which
	Errno  syscall.Errno  // refused: why
	Passed bool           // that signal came to a rank, not to gorun
	Killed bool           // some rank had to be killed, or the user was impatient
	Late   []int          // ranks that did not end in the grace period
	Ends   []End          // by rank

	Suspended time.Duration // for how long gorun was stopped, with its job
}

// SignalName is "SIGINT".
func SignalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(sig))
}
