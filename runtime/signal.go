package runtime

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// leaveTime is how long f may go on after another rank failed.
const leaveTime = 50 * time.Millisecond

// A stop watches for the signals that ask this rank to end.
type stop struct {
	got     atomic.Int32  // the first signal's number; 0 if none came
	asked   chan struct{} // closed when it came
	leaving atomic.Bool   // this rank is on its way out: signals change nothing
}

// watch cancels f's context at the first SIGINT, SIGTERM or SIGHUP. If the job is
// ending because a rank failed, there is nothing to save and the process exits
// soon after; else f may take its time, and a second signal has its default
// action. A signal that was ignored when the program started stays ignored.
func watch(r *rank, cancel context.CancelCauseFunc) *stop {
	s := &stop{asked: make(chan struct{})}
	signals := make(chan os.Signal, 1)
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(sig) {
			signal.Notify(signals, sig)
		}
	}
	go func() {
		number := (<-signals).(syscall.Signal)
		if s.leaving.Load() {
			return
		}
		s.got.Store(int32(number))
		close(s.asked)
		signal.Stop(signals)
		cancel(&interruptError{number})
		if r.jobFailed() {
			time.Sleep(leaveTime)
			os.Exit(128 + int(number))
		}
	}()
	return s
}

// ignore makes signals that come from here on do nothing: what this rank has to
// say of its own failure must not be cut off.
func (s *stop) ignore() { s.leaving.Store(true) }

// wait returns when a signal has come, or after d.
func (s *stop) wait(d time.Duration) {
	select {
	case <-s.asked:
	case <-time.After(d):
	}
}

// told reports whether a signal has come.
func (s *stop) told() bool { return s.got.Load() != 0 }

// An interruptError is the cause of f's context when a signal ended it.
type interruptError struct{ signal syscall.Signal }

// Error names the signal.
func (e *interruptError) Error() string { return fmt.Sprintf("interrupted (%v)", e.signal) }

// Is makes an interruptError a context.Canceled.
func (e *interruptError) Is(target error) bool { return target == context.Canceled }
