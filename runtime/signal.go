package runtime

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/internal/stack"
)

// leaveTime is how long f may go on after another rank failed.
const leaveTime = 50 * time.Millisecond

// signalTime is by how much a signal to all ranks may come later to one than to another.
const signalTime = 20 * time.Millisecond

// stopTime is how long a rank of another launcher goes on after a signal if Stopping does not tell its program. mpirun
// and srun kill it sooner, mpiexec of MPICH never. Tests change it.
var stopTime = 30 * time.Second

// A stop is this rank's knowledge of whether the job is to end: by a signal to this
// rank, or to another one, see Stopping.
type stop struct {
	cancel  context.CancelCauseFunc // of f's context
	got     atomic.Int32            // the signal's number; 0 if none came
	asked   chan struct{}           // closed when it came
	late    atomic.Bool             // the job had failed before it came: it is the launcher's
	leaving atomic.Bool             // this rank is on its way out: signals change nothing
	heeded  atomic.Bool             // Stopping has told f, or f has returned
}

// learn takes in that sig came, here or to another rank. Only the first one counts.
func (s *stop) learn(sig syscall.Signal) {
	if s.got.CompareAndSwap(0, int32(sig)) {
		s.cancel(&interruptError{sig})
		close(s.asked)
	}
}

// watch cancels f's context at the first SIGINT, SIGTERM or SIGHUP. If the job is
// ending because a rank failed, there is nothing to save and the process exits
// soon after; else f may take its time. A second signal has its default action in
// a program that nobody launched; a launcher kills ranks that take too long. SIGQUIT
// prints all stacks and ends the process. A signal that was ignored when the program
// started stays ignored.
func watch(r *rank, cancel context.CancelCauseFunc) *stop {
	s := &stop{cancel: cancel, asked: make(chan struct{})}
	if !signal.Ignored(syscall.SIGQUIT) && (r.goroutines == nil || r.job.Rank == 0) { // it prints those of the process
		quit := make(chan os.Signal, 1)
		signal.Notify(quit, syscall.SIGQUIT)
		go func() {
			<-quit
			printStacks(os.Stderr, "SIGQUIT: quit: ", r.job.Rank)
			os.Exit(128 + int(syscall.SIGQUIT))
		}()
	}
	signals := make(chan os.Signal, 1)
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(sig) {
			signal.Notify(signals, sig)
		}
	}
	if r.token != "" {
		signal.Notify(signals, job.StopSignal)
	}
	go s.take(r, signals)
	return s
}

// take does what each signal asks of the rank.
func (s *stop) take(r *rank, signals chan os.Signal) {
	for sig := range signals {
		if s.leaving.Load() {
			return
		}
		if r.segment == nil && r.mpi == nil {
			signal.Stop(signals)
		}
		number := sig.(syscall.Signal)
		if number == job.StopSignal {
			number = syscall.SIGTERM
		}
		r.asked(number)
		s.late.Store(r.jobFailed())
		s.learn(number)
		if s.late.Load() {
			time.Sleep(leaveTime)
			os.Exit(128 + int(number))
		}
		_ = r.trace.save() // whoever sent the signal may not wait for f
		if r.mpi != nil && r.token == "" {
			time.AfterFunc(stopTime, func() { s.overdue(r, number) })
		}
	}
}

// asked tells the launcher that a signal has asked this rank to end, for it may have
// come to this rank alone.
func (r *rank) asked(sig syscall.Signal) {
	if r.segment != nil {
		r.segment.SetAsked(r.job.Rank, sig)
	}
	r.tell(job.Word{Kind: job.Asked, Status: int(sig)})
}

// overdue ends this process if its program has not heeded a signal: it may know nothing of Stopping, or wait in a
// call for a rank that will not come. The other ranks have had the signal too, and say what they do meanwhile.
func (s *stop) overdue(r *rank, sig syscall.Signal) {
	if s.heeded.Load() || s.leaving.Load() {
		return
	}
	printError(os.Stderr, r.job.Rank, fmt.Errorf("the job is to stop (%v), and in %v the program has not learnt so from "+
		"runtime.Stopping: %s; ask Stopping between two steps, and then take the time to save", sig, stopTime, r.doing()))
	time.Sleep(leaveTime)
	os.Exit(128 + int(sig))
}

// doing says what call this rank waits in, or has made last.
func (r *rank) doing() string {
	if r.seen == nil {
		return "its calls are not recorded"
	}
	for _, w := range r.seen.Waiting(r.job.Rank).Waits {
		if w.Attended {
			return fmt.Sprintf("it waits in %s at %s", w.Text, w.Site)
		}
	}
	if last, ok := r.seen.LastCall(r.job.Rank); ok {
		return "its last call was " + r.seen.Describe(last)
	}
	return "it has made no call"
}

// answer tells gorun, if it asks, whether this rank, which is in no call, can do no more than wait. In a call the backend answers.
func (r *rank) answer() {
	for range time.Tick(time.Second) {
		if number := r.segment.Question(r.job.Rank); number != 0 && len(r.segment.Waiting(r.job.Rank).Waits) == 0 {
			r.segment.Answer(r.job.Rank, number, stack.Stuck() != "")
		}
	}
}

// printStacks writes the stacks of all goroutines, in one piece. Go's own way with
// SIGQUIT leaves out those that are running.
func printStacks(w io.Writer, why string, rank int) {
	fmt.Fprintf(w, "%sthe goroutines of rank %d\n\n%s", why, rank, stack.Goroutines())
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

// Is makes an interruptError a context.Canceled that ends no call of package comm.
func (e *interruptError) Is(target error) bool {
	return target == context.Canceled || target == comm.ErrStopping
}
