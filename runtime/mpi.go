//go:build !gompi && !empi

package runtime

import (
	"os"

	"github.com/gorun-spmd/gorun/comm/mpi"
)

// abortEndsProcess says whether Abort of the MPI backend does.
const abortEndsProcess = false

// openMPI starts the MPI library that is found now.
func openMPI(r *rank) (mpiWorld, error) {
	return mpi.Open(mpi.Options{Lost: r.lostRank, Finished: r.tellEnd, Stacks: func() { printStacks(os.Stderr, "", r.job.Rank) }})
}
