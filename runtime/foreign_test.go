//go:build linux

package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/mpi"
	"github.com/gorun-spmd/gorun/internal/job"
)

func TestJobsOfOtherLaunchers(t *testing.T) {
	for _, c := range []struct {
		name string
		vars map[string]string
		want job.Job
		ok   bool
	}{
		{"none", nil, job.Job{}, false},
		{"mpirun", map[string]string{"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
			"OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
			job.Job{Rank: 3, Size: 4, LocalRank: 1, LocalSize: 2}, true},
		{"hydra", map[string]string{"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"},
			job.Job{Rank: 0, Size: 2, LocalRank: 0, LocalSize: 2}, true},
		{"started again", map[string]string{"PMI_RANK": "1", "PMI_SIZE": "2", "GORUN_ATTEMPT": "3"},
			job.Job{Rank: 1, Size: 2, LocalSize: 1, Attempt: 3}, true},
		{"unknown host", map[string]string{"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "2"}, job.Job{Rank: 1, Size: 2, LocalSize: 1}, true},
		{"mpirun of one", map[string]string{"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, job.Job{}, false},
		{"not a rank", map[string]string{"OMPI_COMM_WORLD_RANK": "4", "OMPI_COMM_WORLD_SIZE": "4"}, job.Job{}, false},
		{"batch script", map[string]string{"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4"}, job.Job{}, false},
	} {
		got, _, ok := foreign(func(name string) (string, bool) { v, ok := c.vars[name]; return v, ok })
		if ok != c.ok || got != c.want {
			t.Errorf("%s: got %+v, %v; want %+v, %v", c.name, got, ok, c.want, c.ok)
		}
	}
}

// TestUnderTorchrun is of the variables that torchrun sets, which is no launcher of MPI.
func TestUnderTorchrun(t *testing.T) {
	t.Parallel()
	eachMPI(t, func(t *testing.T, via string) {
		library := map[string]string{"openmpi": "libmpi.so.40", "mpich": "libmpich.so.12"}[via]
		cmd := exec.Command("rankprogram", "sum")
		cmd.Env = append(os.Environ(), "GORUN_MPI_LIB="+library, "RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2")
		out, err := cmd.CombinedOutput()
		if want := "torchrun and the like start no ranks of MPI; start the program with gorun,"; err == nil ||
			!strings.Contains(string(out), want) {
			t.Errorf("%v: %q, want %q", err, out, want)
		}
	})
}

// A rank whose call lacks one that ended well has found the mistake; one whose call
// lacks one that failed has not.
func TestWhoIsDragged(t *testing.T) {
	for _, c := range []struct {
		cause error
		want  job.WordKind
	}{
		{errors.New("disk full"), job.Ended},
		{&comm.AbortError{Rank: 1, Cause: "disk full"}, job.Ended},
		{&comm.AbortError{Rank: 2, Cause: "disk full"}, job.Dragged},
		{&comm.EndedError{Rank: 2}, job.Ended},
		{&comm.EndedError{Rank: 2, Cause: "disk full"}, job.Dragged},
		{context.Canceled, job.Dragged},
	} {
		if got := lastKind(1, fmt.Errorf("step 3: %w", c.cause)); got != c.want {
			t.Errorf("%v: kind %c, want %c", c.cause, got, c.want)
		}
	}
}

// gorun is told of the exit status of a rank of this host where only a shell says it, which the launcher may end before.
func TestLostRankIsTold(t *testing.T) {
	ended := &comm.EndedError{Rank: 3, Cause: "its process on a has ended with exit status 3"}
	for _, c := range []struct {
		launcher, token string
		status          int
		want            string
	}{
		{"pmi", "", 3, "rank 2 on a: rank 3 ended: its process on a has ended with exit status 3\n"},
		{"pmi", "token", 3, job.Word{Kind: job.Gone, Rank: 3, Status: 3, Host: "a"}.Line("token")},
		{"pmi", "token", 143, ""},
		{"pmi", "token", 0, ""},
		{"openmpi", "token", 3, ""},
	} {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		was := os.Stderr
		os.Stderr = write
		(&rank{job: job.Job{Rank: 2}, host: "a", token: c.token, launch: mpi.Launch{Launcher: c.launcher}}).lostRank(ended, c.status)
		os.Stderr = was
		write.Close()
		if got, err := io.ReadAll(read); err != nil || string(got) != c.want {
			t.Errorf("%+v: got %q, %v", c, got, err)
		}
	}
}
