//go:build empi && !gompi

package runtime

import "github.com/gorun-spmd/gorun/comm/empi"

// abortEndsProcess says whether Abort of the MPI backend does.
const abortEndsProcess = true

// openMPI starts the MPI library that the program was linked with. When it is about to end the
// process r tells gorun why.
func openMPI(r *rank) (mpiWorld, error) {
	world, err := empi.Open(r.job.Size)
	if err != nil {
		return nil, err
	}
	world.OnAbort(r.tellFailure)
	return world, nil
}
