//go:build gompi

package gompi

import (
	"fmt"

	"github.com/gorun-spmd/gorun/comm/mpi/blocking"
	mpi "github.com/sbromberger/gompi"
)

// Open starts MPI and returns this rank's end of its world, which Close ends.
// size is the number of ranks that the launcher has started, 0 if unknown: the
// library of another launcher sees one.
func Open(size int) (*blocking.Rank, error) {
	if mpi.IsOn() {
		return nil, fmt.Errorf("gompi: Open: MPI has been started already in this process; call Open once")
	}
	mpi.Start(true)
	if got := mpi.WorldSize(); size > 0 && got != size {
		return nil, fmt.Errorf("gompi: Open: the launcher started %d ranks and the library sees %d: they do not belong together; "+
			"start the program with the mpirun of the library it was linked with", size, got)
	}
	return blocking.New("gompi", binding{mpi.NewCommunicator(nil)}), nil
}

// binding is gompi's world.
type binding struct{ world *mpi.Communicator }

func (b binding) Rank() int { return b.world.Rank() }

func (b binding) Size() int { return b.world.Size() }

func (b binding) Send(data []byte, to, tag int) error {
	b.world.SendBytes(data, to, tag)
	return nil
}

func (b binding) Recv(data []byte, from, tag int) error {
	status := b.world.RecvPreallocBytes(data, from, tag)
	if got := status.GetCount(mpi.Byte); got != len(data) {
		return fmt.Errorf("gompi: a message of rank %d has %d bytes, want %d; make the same calls on all ranks", from, got, len(data))
	}
	return nil
}

func (b binding) Abort() { b.world.Abort(1) }

func (b binding) Close() error {
	mpi.Stop()
	return nil
}
