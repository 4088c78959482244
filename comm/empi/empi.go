//go:build empi

package empi

import (
	"fmt"
	"syscall"

	"github.com/emer/empi/mpi"
	"github.com/gorun-spmd/gorun/comm/mpi/blocking"
)

// Open starts MPI and returns this rank's end of its world, which Close ends.
// size is the number of ranks that the launcher has started, 0 if unknown: the
// library of another launcher, and the binding's dummy, see one.
func Open(size int) (*blocking.Rank, error) {
	if mpi.IsOn() {
		return nil, fmt.Errorf("empi: Open: MPI has been started already in this process; call Open once")
	}
	mpi.LogErrors = false
	if err := mpi.InitThreadSafe(); err != nil {
		return nil, fmt.Errorf("empi: Open: %w", err)
	}
	if !mpi.IsOn() {
		return nil, fmt.Errorf("empi: Open: the binding is its dummy, in which every rank is alone; build with -tags empi,mpi")
	}
	if got := mpi.WorldSize(); size > 0 && got != size {
		return nil, fmt.Errorf("empi: Open: the launcher started %d ranks and the library sees %d: they do not belong together; "+
			"start the program with the mpirun of the library it was linked with", size, got)
	}
	world, err := mpi.NewComm(nil)
	if err != nil {
		return nil, fmt.Errorf("empi: Open: %w", err)
	}
	return blocking.New("empi", binding{world}), nil
}

// binding is empi's world.
type binding struct{ world *mpi.Comm }

func (b binding) Rank() int { return b.world.Rank() }

func (b binding) Size() int { return b.world.Size() }

func (b binding) Send(data []byte, to, tag int) error { return b.world.SendU8(to, tag, data) }

func (b binding) Recv(data []byte, from, tag int) error { return b.world.RecvU8(from, tag, data) }

// Abort ends this process by a signal, so that the launcher sees a failure and
// ends the others: MPI_Abort would be given the exit code 0.
func (b binding) Abort() {
	if syscall.Kill(syscall.Getpid(), syscall.SIGKILL) != nil {
		_ = b.world.Abort() // the next best
	}
	select {} // the signal is on its way
}

func (b binding) Close() error {
	mpi.Finalize()
	return nil
}
