// Package runtime is what a rank runs in: Main finds out which rank of which job
// this process is, gives it the communicator of all ranks, and sees to it that one
// rank's end is never the others' hang.
//
//	func main() { runtime.Main(train) }
//
//	// train runs once on every rank; an error on any rank ends the job.
//	func train(ctx context.Context, world *comm.Comm) error {
//		log := runtime.Logger(ctx)
//		for step := range 100 {
//			runtime.SetStep(ctx, step)
//			…
//			log.Info().Float64("loss", loss).Msg("trained") // rank, host and step are added
//		}
//		return nil
//	}
//
// There is no Init to call first and no Finalize to forget. A program started
// alone is a world of one; started by gorun -np 4 it is one of four. The same
// binary started by mpirun, mpiexec or srun is a rank of that job, through the
// MPI library that it finds then (see package comm/mpi).
//
// # Your duties
//
// Return errors; Main has them printed, tells the other ranks and sets the exit status.
// Look at ctx between steps: it is done when the user interrupts the job (Ctrl-C,
// SIGTERM, SIGHUP), and you then have gorun's grace period to save and return.
// Do not call os.Exit while others work: they would find out from the launcher,
// with no cause.
//
// A job that gorun --max-restarts starts again learns so from Attempt. Call Saved
// whenever there is something to resume from.
//
// # How a rank ends
//
//	f returns nil          exit status 0; a collective that others call later fails, naming this rank
//	f returns an error,    one line on standard error, which gorun prints; pending and later
//	or throws one          collectives of all ranks fail with it; exit status 1
//	f panics               the panic's whole stack; the others as above; exit status 2
//	f calls Goexit         as if it had returned an error that says so
//	another rank failed    exit status 143 within 100 ms; ctx is done in between
//	the job hangs          gorun says who waits for whom; the ranks to blame print the stacks
//	                       of all goroutines (so does any rank at SIGQUIT); exit status 131
//	the user interrupts    ctx is done; f returns in its own time. Exit status 0 if it returns nil,
//	                       128 + the signal's number if it returns ctx's error, else as above
//
// # Traces
//
// gorun --trace out.json writes every call of every rank, and what it computes between
// them, as a file that ui.perfetto.dev and chrome://tracing open. A program that another
// launcher or none has started does so if GORUN_TRACE names the file; if it fails, rank R
// leaves its own part as the file with .rankR behind its name, unless it was killed.
//
// Files named *_test.go and programs that need Go's package of the same name
// import it as goruntime "runtime".
package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	goruntime "runtime"
	"strings"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// Main runs f as this process's rank and ends the process with the exit status
// that the package comment lists. It removes gorun's variables from the
// environment first, so that processes started by f are not ranks.
func Main(f func(ctx context.Context, world *comm.Comm) error) {
	os.Exit(run(f))
}

// run is Main up to the exit status. If f panics, so does run.
func run(f func(context.Context, *comm.Comm) error) (status int) {
	j, launch, err := decode()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	r := newRank(j, launch)
	if err := r.join(); err != nil {
		r.report(err, r.fail(err, false))
		return 1
	}
	r.offerDevice()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	stop := watch(r, cancel)

	returned := false
	defer func() {
		switch {
		case returned:
		case exiting(): // there is no more to come from this goroutine: end the process here
			stop.ignore()
			r.report(errExit, r.fail(errExit, stop.told()))
			r.trace.fall(r)
			_ = r.leaveMPI(errExit)
			os.Exit(1)
		default: // a panic, on its way: say so, and let it go on with its stack whole
			stop.ignore()
			r.fail(errors.New("panic"), stop.told())
			r.trace.fall(r)
		}
	}()
	err = call(context.WithValue(ctx, rankKey{}, r), f, r.world)
	returned = true

	if lost := r.trace.end(r, err); err == nil {
		err = lost
	}
	if err == nil {
		if err = r.leaveMPI(nil); err == nil {
			r.finish()
			return 0
		}
	}
	told := stop.told()
	if told && interrupted(ctx, err) {
		_ = r.leaveMPI(err)
		return 128 + int(stop.got.Load())
	}
	if r.secondary(err) {
		// Let the rank that failed end first: it may still have something to say.
		stop.wait(leaveTime)
		r.fail(err, told)
		return 1
	}
	stop.ignore()
	r.report(err, r.fail(err, told))
	_ = r.leaveMPI(err) // last: it may end this process
	return 1
}

// errExit is how a rank fails whose f leaves by way of runtime.Goexit.
var errExit = errors.New("the rank's function did not return: it called runtime.Goexit, as the Fatal of a test does; return an error instead")

// exiting reports whether this deferred function runs for Goexit, and not for a panic.
func exiting() bool {
	var pcs [64]uintptr
	frames := goruntime.CallersFrames(pcs[:goruntime.Callers(0, pcs[:])])
	for {
		f, more := frames.Next()
		if f.Function == "runtime.Goexit" {
			return true
		}
		if !more || f.Function == "runtime.gopanic" {
			return false
		}
	}
}

// call runs f and turns a thrown error into a returned one.
func call(ctx context.Context, f func(context.Context, *comm.Comm) error, world *comm.Comm) (err error) {
	defer fault.Catch(&err)
	return f(ctx, world)
}

// interrupted reports whether err is no more than ctx's end, on this rank or another.
func interrupted(ctx context.Context, err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx)) || errors.Is(err, comm.ErrAborted)
}

// secondary reports whether err is another rank's failure, or one that another
// rank reports, that arrived here by way of a collective. The launcher reports that rank; under another launcher
// every rank speaks for itself.
func (r *rank) secondary(err error) bool {
	var aborted *comm.AbortError
	var ended *comm.EndedError
	var mismatch *comm.MismatchError
	switch {
	case r.job.ControlFD == 0:
		return false
	case errors.As(err, &aborted):
		return aborted.Rank != r.job.Rank
	case errors.As(err, &ended):
		return ended.Cause != "" || r.job.Rank != first(ended.Rank)
	case errors.As(err, &mismatch): // all ranks say the same: one is enough
		return r.job.Rank != mismatch.A.Rank
	}
	return false
}

// first is the rank that speaks for all that miss one which has ended.
func first(ended int) int {
	if ended == 0 {
		return 1
	}
	return 0
}

// report prints an error as one line, unless the launcher does.
func (r *rank) report(err error, heard bool) {
	if !heard {
		printError(os.Stderr, r.job.Rank, err)
	}
}

func printError(w io.Writer, rank int, err error) {
	text := strings.ReplaceAll(strings.TrimRight(err.Error(), "\n"), "\n", "; ")
	fmt.Fprintf(w, "rank %d: %s\n", rank, text)
}
