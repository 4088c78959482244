//go:build !gompi && !empi

package runtime

import "github.com/gorun-spmd/gorun/comm/mpi"

// abortEndsProcess says whether Abort of the MPI backend does.
const abortEndsProcess = false

// openMPI starts the MPI library that is found now.
func openMPI(int, func(error)) (mpiWorld, error) { return mpi.Open(mpi.Options{}) }
