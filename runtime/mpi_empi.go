//go:build empi && !gompi

package runtime

import "github.com/gorun-spmd/gorun/comm/empi"

// abortEndsProcess says whether Abort of the MPI backend does.
const abortEndsProcess = true

// openMPI starts the MPI library that the program was linked with, for a launcher that
// started size ranks. ending is told why the process is about to end.
func openMPI(size int, ending func(error)) (mpiWorld, error) {
	r, err := empi.Open(size)
	if err != nil {
		return nil, err
	}
	r.OnAbort(ending)
	return r, nil
}
