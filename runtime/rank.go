package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/mem"
	"github.com/gorun-spmd/gorun/comm/mpi"
	"github.com/gorun-spmd/gorun/comm/shm"
	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/internal/depot"
	"github.com/gorun-spmd/gorun/internal/job"
)

// A rank is all that runtime knows of this process. It travels in the ctx of f.
type rank struct {
	job  job.Job
	host string
	log  zerolog.Logger
	step atomic.Int64 // -1 before the first SetStep

	segment   *control.Segment // nil if no launcher made one
	seen      *control.Segment // of the MPI library's ranks, see guard; nil if there is none
	launch    mpi.Launch       // zero if the launcher is gorun, or there is none
	mpi       mpiWorld         // nil if launch is zero
	left      bool             // mpi was closed
	toldEnd   sync.Once        // see tellEnd
	toldSaved sync.Once        // see saved
	token     string           // of words to gorun (see job.Word); "": it does not ask for them
	world     *comm.Comm       // nil before join
	device    chooser          // of the tensors
	traceTo   string           // where the environment asks for a trace; "" if nowhere
	profile   string           // the folder where it asks for profiles; "" if nowhere
	trace     *tracer          // nil if there is none
	stop      *stop            // nil before watch

	hold      hold           // on the depot of its host
	snapshots *job.Snapshots // of an elastic job on several hosts; nil in others

	goroutines *goroutineRanks // nil if the rank is a process
	forecast   *forecaster     // nil unless the program runs for one
}

// rankKey is the key of a *rank in a context.
type rankKey struct{}

// from returns the rank that ctx belongs to, or nil if Main did not make ctx.
func from(ctx context.Context) *rank {
	r, _ := ctx.Value(rankKey{}).(*rank)
	return r
}

// newRank is the rank that j describes. It removes the contract from the
// environment, and keeps its descriptors from the rank's own children.
func newRank(j job.Job, l mpi.Launch) *rank {
	for _, name := range job.Names() {
		_ = os.Unsetenv(name)
	}
	traceTo := os.Getenv(job.TraceVar)
	profile := os.Getenv(job.ProfileVar)
	_ = os.Unsetenv(job.TraceVar)
	_ = os.Unsetenv(job.ProfileVar)
	if j.ControlFD != 0 {
		closeOnExec(j.ControlFD)
		closeOnExec(j.ArenaFD)
	}
	if j.TraceFD != 0 {
		closeOnExec(j.TraceFD)
	}
	if j.SnapshotFD != 0 {
		closeOnExec(j.SnapshotFD)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	r := &rank{job: j, launch: l, host: host, traceTo: traceTo, profile: profile}
	r.step.Store(-1)
	r.log = newLogger(os.Stderr, r, os.Getenv)
	if j.Rank == 0 {
		r.checkVariables()
	}
	return r
}

// switches are the variables for users that turn something on or off: those that docs/environment.md gives 0 or 1, or one of them.
var switches = [...]string{"GORUN_CHECK", "GORUN_CUDA_FOLD", "GORUN_CUDA_IPC", "GORUN_CUDA_POOL", "GORUN_CUDA_PTX", "GORUN_CUDA_SYNC",
	"GORUN_DEBUG", "GORUN_DETECT_ANOMALY", job.DigestOpsVar, "GORUN_MPI_CUDA", "GORUN_OVERLAP", job.SameBitsVar}

// others are the other variables that a rank may find: those of docs/environment.md that are for users or are set by gorun, less
// those that newRank has removed.
var others = [...]string{"GORUN_CUBLAS_LIB", "GORUN_CUDA_LIB", stageVar, depot.Var, job.DigestVar, job.DigestEveryVar, job.GoroutinesVar,
	job.GPUsVar, job.HangTimeoutVar, job.HostTimeoutVar, "GORUN_LOG", "GORUN_LOG_FORMAT", "GORUN_MPI_LIB", job.PlanVar, job.WordVar}

// checkVariables says so of each switch that is neither 0 nor 1, such as true, and of each variable that is misspelt: they have no
// effect. Those of tests are passed over.
func (r *rank) checkVariables() {
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		switch {
		case !strings.HasPrefix(name, "GORUN_") || strings.Contains(name, "_TEST_") || strings.Contains(name, "_FAKE_"):
		case slices.Contains(switches[:], name):
			if value != "" && value != "0" && value != "1" {
				r.log.Warn().Msgf("%s=%s has no effect; give 0 or 1", name, value)
			}
		case !slices.Contains(others[:], name):
			r.log.Warn().Msgf("%s has no effect: gorun has no variable of this name; see docs/environment.md", name)
		}
	}
}

// join opens what the launcher shares with this rank, if one started it, makes
// r.world and starts the trace.
func (r *rank) join() (err error) {
	if err := r.joinWorld(); err != nil {
		return err
	}
	if r.trace, err = newTracer(r, r.traceTo); err != nil {
		return err
	}
	world := r.world
	if r.mpi != nil {
		world = comm.NewWorld(r.mpi) // calls by it are not counted with the program's
		if err := r.watchHosts(context.Background(), world); err != nil {
			return err
		}
	}
	return r.joinDepot(context.Background(), world)
}

func (r *rank) joinWorld() error {
	if r.job.ControlFD != 0 {
		if err := r.openSegment(); err != nil {
			return err
		}
		if !r.segment.Join(r.job.Rank) && r.job.Size > 1 {
			err := r.segment.Close() // what the rank says there it alone may say
			r.segment = nil
			return errors.Join(fmt.Errorf("runtime: another process is rank %d of this job, or was, and a rank is one process; "+
				"start this one with a gorun of its own, or without the GORUN_ variables", r.job.Rank), err)
		}
	}
	switch {
	case r.forecast != nil:
		r.world = comm.NewWorld(r.forecast.end)
		r.forecast.watch()
	case r.goroutines != nil:
		r.world = comm.NewWorld(r.goroutines.ends[r.job.Rank])
	case r.launch.Launcher != "":
		return r.joinMPI()
	case r.job.Size == 1:
		r.world = comm.NewWorld(mem.Open(1)[0])
	case r.segment == nil:
		return fmt.Errorf("runtime: rank %d of %d was given no shared memory; start the program with gorun", r.job.Rank, r.job.Size)
	default:
		backend, err := shm.Open(r.segment, r.job.Rank)
		if err != nil {
			return err
		}
		r.world = comm.NewWorld(backend)
	}
	return nil
}

// openSegment maps the segment and the arenas, and closes their descriptors.
func (r *rank) openSegment() error {
	file := os.NewFile(uintptr(r.job.ControlFD), "control segment")
	defer file.Close()
	arenas := os.NewFile(uintptr(r.job.ArenaFD), "shared memory of the ranks")
	defer arenas.Close()
	var err error
	r.segment, err = control.Open(file, arenas, r.job.Size, r.job.Rank)
	return err
}

// fail tells the other ranks that this one has failed, and why; the launcher too,
// unless the rank had been told to end: then it is no reason for others to hurry.
// It reports whether the launcher prints the cause for this rank: it prints that
// of the first failure, which may be another rank's in the same words.
func (r *rank) fail(cause error, told bool) (heard bool) {
	if r.segment != nil {
		same, other := r.others(cause.Error())
		heard = same || !other && !told
		if !told {
			r.segment.SetError(r.job.Rank, cause.Error())
		}
		r.segment.SetState(r.job.Rank, control.Failed)
	}
	if r.world != nil {
		r.world.Abort(cause)
	}
	return heard
}

// others reports whether other ranks have failed with the same words or others.
func (r *rank) others(cause string) (same, other bool) {
	for n := range r.job.Size {
		if text, _ := r.segment.Error(n); n != r.job.Rank && text != "" {
			same = same || text == cause
			other = other || text != cause
		}
	}
	return same, other
}

// finish says that this rank has done its work.
func (r *rank) finish() {
	if r.segment != nil {
		r.segment.SetState(r.job.Rank, control.Finished)
	}
}

// jobFailed reports whether the job is ending because some rank failed: a signal
// to end is then the launcher's, and not the user's.
func (r *rank) jobFailed() bool {
	if r.segment == nil {
		return r.mpi != nil && r.mpi.Failure() != nil
	}
	for other := range r.job.Size {
		if cause, ended := r.segment.HasEnded(other); ended && cause != "" && !strings.HasPrefix(cause, job.Stopped) {
			return true
		}
		if text, _ := r.segment.Error(other); text != "" {
			return true
		}
	}
	return false
}

// SetStep records which step the program begins, counted from 0, for its log lines and for
// whoever watches the job: after a failure gorun says how many steps are made again. It may be
// called from any goroutine, and does nothing if ctx was not made by Main.
func SetStep(ctx context.Context, step int) {
	r := from(ctx)
	if r == nil {
		return
	}
	if before := r.step.Swap(int64(step)); before < 0 && r.snapshots != nil && r.job.Rank == 0 {
		r.tell(job.Word{Kind: job.Begun})
	}
	r.forecast.mark(bySetStep)
	r.trace.step(step)
	if s := cmp.Or(r.segment, r.seen); s != nil && step >= 0 {
		s.SetStep(r.job.Rank, step)
	}
}

// Saved tells the launcher that the job can be resumed from what is saved now. With
// gorun --max-restarts a job that fails is started again (see Attempt), but not if
// it failed within seconds of its start and had saved nothing. A checkpoint.Store calls
// it by itself, if its Save has a ctx of Main.
func Saved(ctx context.Context) {
	job.Saved(ctx)
}

// saved tells the launcher that the job can be resumed.
func (r *rank) saved() {
	if s := cmp.Or(r.segment, r.seen); s != nil {
		s.SetSaved(r.job.Rank)
	}
	r.toldSaved.Do(func() { r.tell(job.Word{Kind: job.Stored}) })
}

// withSnapshots gives ctx the launcher's memory for snapshots, if there is any.
func (r *rank) withSnapshots(ctx context.Context) context.Context {
	if r.snapshots != nil {
		return job.WithSnapshots(ctx, r.snapshots)
	}
	if r.job.SnapshotFD == 0 || r.segment == nil {
		return ctx
	}
	return job.WithSnapshots(ctx, &job.Snapshots{File: os.NewFile(uintptr(r.job.SnapshotFD), "snapshots"), Attempt: r.job.Attempt,
		Reserve: r.segment.Reserve})
}

// Attempt returns 0 in the first start of a job, and n in its n-th restart. It is
// 0 if ctx was not made by Main.
func Attempt(ctx context.Context) int {
	if r := from(ctx); r != nil {
		return r.job.Attempt
	}
	return 0
}

// Local returns this rank's number among the ranks of its host and how many there
// are: 0 and 1 if ctx was not made by Main.
func Local(ctx context.Context) (rank, size int) {
	if r := from(ctx); r != nil {
		return r.job.LocalRank, r.job.LocalSize
	}
	return 0, 1
}
