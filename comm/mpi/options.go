package mpi

import (
	"errors"
	"time"

	"github.com/gorun-spmd/gorun/comm/backend"
)

// ErrFinalize is the error of Close when all ranks have ended well and the library
// has not: nothing is lost, and the process can exit as it would have.
var ErrFinalize = errors.New("MPI_Finalize does not return")

// Options say how Open starts. The zero Options are right for most programs.
type Options struct {
	// Library is the MPI library to load, as a path or a name for the dynamic
	// linker. If "" it is GORUN_MPI_LIB's, else one that fits the launcher.
	Library string
	// Debug makes each rank compare its calls with those of all ranks, not of its
	// neighbours alone, as GORUN_DEBUG=1 does: a call that runs out of time then names
	// every rank that did not make it.
	Debug bool
	// Unchecked makes the ranks trust that they make the same calls, as GORUN_DEBUG=0 does.
	Unchecked bool
	// Unordered lets the library reduce floating-point numbers in an order of
	// its own: faster where many ranks reduce little, and not the bits of the
	// other backends, nor always of the last run.
	Unordered bool
	// Lost is told of a process of this machine that has ended without a Close, by the first of its
	// ranks to see that. It is called before calls fail, since launchers may kill all ranks then. status is the exit
	// status of the process; 0 if a signal killed it, or it is not known.
	Lost func(err *backend.EndedError, status int)
	// Finished is called when all ranks have called Close without a cause, before the library ends:
	// the job has done its work, whatever becomes of the library then.
	Finished func()
	// Stacks is called when another rank wants to see the stacks of this one's goroutines.
	Stacks func()
	// Linger is how long Close waits for the other ranks after an error,
	// before it ends them, and how long ranks go on after one has died. 0 is 5 s.
	Linger time.Duration
}
