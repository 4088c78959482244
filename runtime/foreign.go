package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/mpi"
	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/launcher/phrase"
)

// foreign returns the job that a launcher other than gorun, mpirun or srun for
// instance, started this process for; ok is false if none did, or if the job is
// a world of one, which needs no MPI.
func foreign(env func(string) (string, bool)) (j job.Job, l mpi.Launch, ok bool) {
	l, ok = mpi.Detect(env)
	if !ok || l.Size < 2 {
		return job.Job{}, l, false
	}
	j = job.Job{Rank: l.Rank, Size: l.Size, LocalRank: l.LocalRank, LocalSize: max(1, l.LocalSize)}
	if text, given := env(job.AttemptVar); given {
		j.Attempt, _ = strconv.Atoi(text) // it is gorun's
	}
	return j, l, true
}

// An mpiWorld is this rank's end of the world of a job that another launcher started. Which
// backend it is of is chosen when the program is built: comm/mpi, or with a tag comm/gompi
// or comm/empi.
type mpiWorld interface {
	comm.Backend
	Library() string
	Failure() error
	Close(cause error) error
}

// joinMPI makes the world of a job that another launcher started.
func (r *rank) joinMPI() error {
	r.token = os.Getenv(job.WordVar)
	_ = os.Unsetenv(job.WordVar) // this rank's children are none
	b, err := openMPI(r)
	if err != nil {
		return err
	}
	if b.Size() != r.job.Size || b.Rank() != r.job.Rank {
		return fmt.Errorf("runtime: %s started rank %d of %d, but to %s it is rank %d of %d: the library belongs to another launcher; "+
			"name the right one with GORUN_MPI_LIB",
			r.launch.Launcher, r.job.Rank, r.job.Size, phrase.FirstLine(b.Library()), b.Rank(), b.Size())
	}
	r.mpi = b
	r.world = comm.NewWorld(b)
	return r.guard()
}

// leaveMPI ends this rank's part in such a job; cause is nil if it ends well.
func (r *rank) leaveMPI(cause error) error {
	if r.mpi == nil {
		return nil
	}
	if cause != nil {
		r.tellFailure(cause)
		if r.left {
			return nil
		}
		return r.mpi.Close(cause) // the library may end this process
	}
	err := r.mpi.Close(nil)
	r.left = true
	if errors.Is(err, mpi.ErrFinalize) {
		r.log.Warn().AnErr("cause", err).Msg("all ranks are done; leaving without the MPI library")
		return nil
	}
	if err == nil {
		r.tellEnd()
	}
	return err
}

// tellEnd tells gorun that this rank has ended well, once.
func (r *rank) tellEnd() {
	r.toldEnd.Do(func() { r.tell(job.Word{Kind: job.Ended}) })
}

// tellFailure tells gorun that this rank fails, and why.
func (r *rank) tellFailure(cause error) {
	r.tell(job.Word{Kind: lastKind(r.job.Rank, cause), Status: 1, Text: cause.Error()})
}

// greet tells gorun, if the job is handed over by it, that this rank has started,
// and then, for all ranks of its host, that the host is there. It comes after watch: who
// has greeted takes a StopSignal.
func (r *rank) greet() {
	if r.token == "" {
		return
	}
	r.tell(job.Word{Kind: job.Started})
	if r.job.LocalRank == 0 {
		go func() {
			for range time.Tick(job.AliveInterval) {
				r.tell(job.Word{Kind: job.Alive})
			}
		}()
	}
}

// tell writes a word of this rank for gorun on standard error.
func (r *rank) tell(w job.Word) { r.tellOf(r.job.Rank, w) }

// tellOf writes a word for gorun of a rank of this host.
func (r *rank) tellOf(rank int, w job.Word) {
	if r.token != "" {
		w.Rank, w.Host = rank, r.host
		_, _ = os.Stderr.WriteString(w.Line(r.token)) // if nobody reads it nobody misses it
	}
}

// lastKind tells whether a rank fails with cause of its own accord, or because
// another one has, or as it was asked to end.
func lastKind(me int, cause error) job.WordKind {
	var aborted *comm.AbortError
	var ended *comm.EndedError
	var asked *interruptError
	if errors.As(cause, &aborted) && aborted.Rank != me || errors.As(cause, &ended) && ended.Cause != "" || errors.As(cause, &asked) ||
		errors.Is(cause, context.Canceled) {
		return job.Dragged
	}
	return job.Ended
}

// decode returns the job of this process: gorun's, else another launcher's, else
// the world of one.
func decode() (job.Job, mpi.Launch, error) {
	j, err := job.Decode(os.LookupEnv)
	if err != nil || j.ID != "" || j.Size > 1 {
		return j, mpi.Launch{}, err
	}
	if f, l, ok := foreign(os.LookupEnv); ok {
		return f, l, nil
	}
	return j, mpi.Launch{}, nil
}
