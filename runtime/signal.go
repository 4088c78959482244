package runtime

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	goruntime "runtime"
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
// action. SIGQUIT prints all stacks and ends the process. A signal that was ignored
// when the program started stays ignored.
func watch(r *rank, cancel context.CancelCauseFunc) *stop {
	s := &stop{asked: make(chan struct{})}
	if !signal.Ignored(syscall.SIGQUIT) {
		quit := make(chan os.Signal, 1)
		signal.Notify(quit, syscall.SIGQUIT)
		go func() {
			<-quit
			printStacks(os.Stderr, r.job.Rank)
			os.Exit(128 + int(syscall.SIGQUIT))
		}()
	}
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
		_ = r.trace.save() // whoever sent the signal may not wait for f
	}()
	return s
}

// printStacks writes the stacks of all goroutines, in one piece. Go's own way with
// SIGQUIT leaves out those that are running.
func printStacks(w io.Writer, rank int) {
	const most = 16 << 20
	buf := make([]byte, 64<<10)
	n := goruntime.Stack(buf, true)
	for n == len(buf) && n < most {
		buf = make([]byte, 2*n)
		n = goruntime.Stack(buf, true)
	}
	fmt.Fprintf(w, "SIGQUIT: quit: the goroutines of rank %d\n\n%s", rank, buf[:n])
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
