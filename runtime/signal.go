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
	got     atomic.Int32 // the first signal's number; 0 if none came
	signals chan os.Signal
	done    chan struct{}
}

// watch cancels f's context at the first SIGINT, SIGTERM or SIGHUP. If the job is
// ending because a rank failed, there is nothing to save and the process exits
// soon after; else f may take its time, and a second signal has its default
// action. A signal that was ignored when the program started stays ignored.
func watch(r *rank, cancel context.CancelCauseFunc) *stop {
	s := &stop{signals: make(chan os.Signal, 1), done: make(chan struct{})}
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(sig) {
			signal.Notify(s.signals, sig)
		}
	}
	go func() {
		select {
		case <-s.done:
		case sig := <-s.signals:
			number := sig.(syscall.Signal)
			s.got.Store(int32(number))
			signal.Stop(s.signals)
			cancel(&interruptError{number})
			if r.jobFailed() {
				time.Sleep(leaveTime)
				os.Exit(128 + int(number))
			}
		}
	}()
	return s
}

// end stops watching.
func (s *stop) end() {
	signal.Stop(s.signals)
	close(s.done)
}

// signal returns the signal that came, if one did.
func (s *stop) signal() (number syscall.Signal, ok bool) {
	n := syscall.Signal(s.got.Load())
	return n, n != 0
}

// An interruptError is the cause of f's context when a signal ended it.
type interruptError struct{ signal syscall.Signal }

// Error names the signal.
func (e *interruptError) Error() string { return fmt.Sprintf("interrupted (%v)", e.signal) }

// Is makes an interruptError a context.Canceled.
func (e *interruptError) Is(target error) bool { return target == context.Canceled }
