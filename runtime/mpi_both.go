//go:build gompi && empi

package runtime

import "errors"

// abortEndsProcess says whether Abort of the MPI backend does.
const abortEndsProcess = false

// openMPI refuses.
func openMPI(*rank) (mpiWorld, error) {
	return nil, errors.New("runtime: the program was built with the tags gompi and empi, which define the same C symbols; " +
		"build it with one of them, or with none")
}
