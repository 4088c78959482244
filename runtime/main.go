// Package runtime is what a rank runs in: Main finds out which rank of which job
// this process is, gives it the communicator of all ranks, and sees to it that one
// rank's end is never the others' hang.
//
//	func main() { runtime.Main(train) }
//
//	// train runs once on every rank; an error on any rank ends the job.
//	func train(ctx context.Context, world *comm.Comm) error {
//		log := runtime.Logger(ctx)
//		for step := 0; step < 100 && !runtime.Stopping(ctx, world); step++ {
//			runtime.SetStep(ctx, step)
//			…
//			log.Info().Float64("loss", loss).Msg("trained") // rank, host and step are added
//		}
//		return save(ctx)
//	}
//
// There is no Init to call first and no Finalize to forget. A program started
// alone is a world of one; started by gorun -np 4 it is one of four. With
// GORUN_GOROUTINES=4 in its environment it is all four, each a goroutine: for debuggers,
// and for macOS and Windows, where gorun -np 4 starts it so. Then f runs four times in one
// process, so it must not write to variables that the ranks share. The same
// binary started by mpirun, mpiexec or srun is a rank of that job, through the
// MPI library that it finds then (see package comm/mpi). Built with -tags gompi, or -tags
// empi,mpi, it uses the one that it was linked with (see packages comm/gompi and comm/empi).
//
// # Your duties
//
// Return errors; Main has them printed, tells the other ranks and sets the exit status.
// Ask Stopping between two steps. Do not call os.Exit: the others would find out from the
// launcher, with no cause.
//
// A job that gorun --max-restarts starts again learns so from Attempt. A checkpoint.Store
// tells gorun what there is to resume from; a program that saves in another way calls Saved.
// Under gorun --elastic restart package train keeps snapshots in memory of gorun's, and goes on
// from them; a program with a loop of its own has checkpoint.OpenSnapshots.
//
// # How a job stops
//
// The user stops a job by Ctrl-C, or by SIGTERM or SIGHUP to gorun or to any one of the
// ranks; gorun itself does when --timeout is over. On each rank ctx is then cancelled, at
// once, for what waits for ctx.Done. Collectives under ctx, and what is made of them, such
// as ValueAndGrad and a checkpoint's Save, go on working, so that the ranks can finish the
// step and save. gorun kills them when its grace period is over (--grace, 5 s if not given).
//
// The signal reaches the ranks at different steps. Stopping gives all of them the same
// answer at the same step. A loop that looks at ctx.Err itself has its ranks leave at
// different steps: where their next calls differ, all ranks fail with an error that names
// the two calls, and nothing is saved.
//
// If nobody launched the program, a second signal ends it. A rank takes no notice of it:
// to its launcher a second Ctrl-C means to kill all ranks. A rank of mpirun, mpiexec or srun
// whose program has not learnt of the signal from Stopping within 30 s, for it does not ask or
// waits for another rank, says in which call it is and exits.
//
// # How a rank ends
//
//	f returns nil, or      exit status 0; a collective that others call later fails, naming this rank
//	flag.ErrHelp           (it first waits for saves of package checkpoint, and for calls that Start began: an
//	                       error that no Wait has returned is as if f had). A line on standard error says
//	                       so if a call on world has failed before
//	f returns an error,    one line on standard error, which gorun prints; pending and later
//	or throws one          collectives of all ranks fail with it; exit status 1
//	f panics               the panic's whole stack; the others as above; exit status 2
//	f calls Goexit         as if it had returned an error that says so
//	f calls os.Exit(0)     exit status 0 of the rank; gorun says so and ends with 1 if the rank has called others before
//	another rank failed    exit status 143 within 100 ms; ctx is done in between
//	a host is cut off      over MPI, the ranks there and those on rank 0's host end; exit status 1, see below
//	a rank dies, over MPI  the first rank of its host to see it says so; calls that need it fail; exit status 1
//	the job hangs          gorun, or rank 0 over MPI, says who waits for whom; the ranks to blame print the
//	                       stacks of all goroutines (so does any rank at SIGQUIT); exit status 131, over MPI 1
//	the user stops the job ctx is done; f returns in its own time. Exit status 0 if it returns nil, 128 +
//	                       the signal's number if it returns ctx's error; any other error is printed,
//	                       exit status 1. gorun's own is 128 + the signal's number, or 124 for --timeout
//
// # Hosts that are cut off
//
// Over MPI on several hosts, each rank holds a TCP connection between its host and rank 0's,
// on which the kernels probe each other. If no answer comes the rank says which host it lost,
// kills what it has started and exits, whatever call it is in: in less than 15 s under gorun,
// and 1 minute under another launcher. GORUN_HOST_TIMEOUT sets the time. A rank that is
// stopped, or ends, is not taken for lost, but a host that sleeps is. Where a firewall forbids
// the connection a warning says so, and the job goes on without.
//
// # Traces
//
// gorun --trace out.json writes every call of every rank, and what it computes between
// them, as a file that ui.perfetto.dev and chrome://tracing open. A program that another
// launcher or none has started does so if GORUN_TRACE names the file; if it fails, rank R
// leaves its own part as the file with .rankR behind its name, unless it was killed.
//
// # Profiles
//
// gorun --profile DIR has rank N write DIR/rank.N.cpu, a profile of its processor time, and DIR/rank.N.mem, one of its
// allocations, when its function returns: go tool pprof reads them. Of another launcher's ranks GORUN_PROFILE names the folder.
//
// Files named *_test.go and programs that need Go's package of the same name
// import it as goruntime "runtime".
package runtime

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	goruntime "runtime"
	"strings"
	"sync"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/job"
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
	ranks := 1
	if err == nil && j.ID == "" && launch.Launcher == "" {
		ranks, err = goroutines(os.Getenv(job.GoroutinesVar))
	}
	_ = os.Unsetenv(job.GoroutinesVar) // this process's children are not ranks
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	plan := os.Getenv(job.PlanVar)
	_ = os.Unsetenv(job.PlanVar)
	r := newRank(j, launch)
	if plan != "" {
		return r.runForecast(plan, f)
	}
	if ranks > 1 {
		return r.runGoroutines(ranks, f)
	}
	return r.run(f)
}

// run runs f as rank r and returns the exit status.
func (r *rank) run(f func(context.Context, *comm.Comm) error) (status int) {
	if err := r.join(); err != nil {
		r.report(err, r.fail(err, false))
		return 1
	}
	writeProfile, err := r.startProfile()
	if err != nil {
		r.report(err, r.fail(err, false))
		return 1
	}
	r.offerDevice()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	stop := watch(r, cancel)
	r.stop = stop
	if r.segment != nil {
		go r.answer()
	}
	r.greet()

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
			if r.mpi == nil || !abortEndsProcess { // else the stack would be lost; the launcher ends the others
				r.fail(errors.New("panic"), stop.told())
			}
			r.trace.fall(r)
		}
	}()
	ctx = job.WithSaved(context.WithValue(ctx, rankKey{}, r), r.saved)
	var ends ending
	ctx = job.WithEnd(ctx, ends.add)
	err = call(r.withSnapshots(ctx), f, r.world)
	returned = true
	stop.heeded.Store(true)
	if lost := writeProfile(); err == nil {
		err = lost
	}
	if r.forecast.over(err) {
		r.finish()
		return 0
	}
	if err == nil {
		err = ends.end()
	}
	if err == nil {
		err = r.world.Internals().Settle()
	}
	return r.leave(ctx, stop, err)
}

// leave ends the rank's part of the job, whose program has returned err, and returns the exit status.
func (r *rank) leave(ctx context.Context, stop *stop, err error) (status int) {
	if lost := r.trace.end(r, err); err == nil {
		err = lost
	}
	if err == nil {
		r.missErrors()
		r.missDigests()
		var lost *backend.UnreceivedError
		if err = r.leaveWorld(); err == nil || errors.As(err, &lost) && stop.told() { // ranks that are stopped may leave at different steps
			r.finish()
			return 0
		}
	}
	apart := errors.Is(err, comm.ErrMismatch) || errors.Is(err, comm.ErrEnded)
	if apart {
		stop.wait(signalTime) // other ranks may have got a signal that is about to come
	}
	told := stop.told()
	if told && r.interrupted(ctx, err) {
		if text := err.Error(); text != ctx.Err().Error() && text != context.Cause(ctx).Error() && !r.dragged(err) {
			r.report(err, false)
		}
		_ = r.leaveMPI(nil)
		return 128 + int(stop.got.Load())
	}
	if told && apart && !stop.late.Load() {
		err = fmt.Errorf("%w; the job is to stop (%v), and ranks that look at ctx leave their loops at different steps: "+
			"look at runtime.Stopping instead", err, context.Cause(ctx))
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

// leaveWorld ends this rank's part of the job, whose program has ended well. Its error may be that a message
// has no receiver.
func (r *rank) leaveWorld() error {
	if b, ok := r.world.Internals().Backend().(backend.LeavingBackend); ok {
		return b.Leave()
	}
	return r.leaveMPI(nil)
}

// An ending is what is left to do when the program's function has returned nil.
type ending struct {
	mu   sync.Mutex
	list []func() error
}

func (e *ending) add(f func() error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, f)
}

// end does it, and returns the first error.
func (e *ending) end() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, f := range e.list {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// missErrors says so if a call on world has failed, and the program did not return its error. It may have dealt with
// it.
func (r *rank) missErrors() {
	if err := r.world.Internals().Failed(); err != nil {
		printError(os.Stderr, r.job.Rank, fmt.Errorf("warning: the program returned nil after a call had failed; it should return "+
			"what calls return, unless it has dealt with it: %w", err))
	}
}

// missDigests says so if the user has asked for digests and the program has written none.
func (r *rank) missDigests() {
	path := os.Getenv(job.DigestVar)
	if path == "" || r.job.Rank != 0 {
		return
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		printError(os.Stderr, 0, fmt.Errorf("--digest: the program has written nothing to %s: package train does, "+
			"and a loop of its own by checkpoint.OpenDigestLog", path))
	}
}

// errExit is how a rank fails whose f leaves by way of runtime.Goexit.
var errExit = errors.New("the rank's function did not return: it called runtime.Goexit, as the Fatal of a test does; " +
	"return an error instead")

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

// call runs f and turns a thrown error into a returned one, and flag.ErrHelp into none.
func call(ctx context.Context, f func(context.Context, *comm.Comm) error, world *comm.Comm) (err error) {
	defer fault.Catch(&err)
	if err := f(ctx, world); !errors.Is(err, flag.ErrHelp) {
		return err
	}
	return nil
}

// interrupted reports whether err is no more than ctx's end, on this rank or another.
func (r *rank) interrupted(ctx context.Context, err error) bool {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range several.Unwrap() {
			if !r.interrupted(ctx, err) {
				return false
			}
		}
		return true
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx)) || r.dragged(err)
}

// dragged reports whether err is no more than that another rank failed, which that rank
// tells, or ended because it was told to.
func (r *rank) dragged(err error) bool {
	var aborted *comm.AbortError
	var ended *comm.EndedError
	return errors.As(err, &aborted) && aborted.Rank != r.job.Rank || errors.As(err, &ended) && strings.HasPrefix(ended.Cause, job.Stopped)
}

// secondary reports whether err is another rank's failure, or one that another
// rank reports, that arrived here by way of a collective. The launcher reports that rank; under another launcher
// every rank speaks for itself.
func (r *rank) secondary(err error) bool {
	var aborted *comm.AbortError
	var ended *comm.EndedError
	var mismatch *comm.MismatchError
	switch {
	case r.goroutines != nil: // of the others, the first to fail reports
		return errors.As(err, &aborted) && aborted.Rank != r.job.Rank
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

// report prints an error as one line, unless the launcher does. Of ranks that are
// goroutines the first that fails has it printed.
func (r *rank) report(err error, heard bool) {
	if !heard && r.goroutines.first() {
		printError(os.Stderr, r.job.Rank, err)
	}
}

func printError(w io.Writer, rank int, err error) {
	text := strings.ReplaceAll(strings.TrimRight(err.Error(), "\n"), "\n", "; ")
	fmt.Fprintf(w, "rank %d: %s\n", rank, text)
}
