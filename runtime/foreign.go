package runtime

import (
	"fmt"
	"os"
	"strings"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/mpi"
	"github.com/gorun-spmd/gorun/internal/job"
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
	return j, l, true
}

// joinMPI makes the world of a job that another launcher started.
func (r *rank) joinMPI() error {
	b, err := mpi.Open(mpi.Options{})
	if err != nil {
		return err
	}
	if b.Size() != r.job.Size || b.Rank() != r.job.Rank {
		return fmt.Errorf("runtime: %s started rank %d of %d, but to %s it is rank %d of %d: the library belongs to another launcher; name the right one with GORUN_MPI_LIB",
			r.launch.Launcher, r.job.Rank, r.job.Size, firstLine(b.Library()), b.Rank(), b.Size())
	}
	r.mpi = b
	r.world = comm.NewWorld(b)
	return nil
}

// leaveMPI ends this rank's part in such a job; cause is nil if it ends well.
func (r *rank) leaveMPI(cause error) error {
	if r.mpi == nil {
		return nil
	}
	return r.mpi.Close(cause)
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
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
