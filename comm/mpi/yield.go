//go:build linux && !nolibs

package mpi

import (
	goruntime "runtime"

	"github.com/ebitengine/purego"
)

// yielding is Open MPI's control variable that is true where the library itself yields
// the core at each look that finds nothing, as it does if mpirun has started more ranks
// than there are cores. A second yield of ours then lets the others look twice as often
// in vain: a barrier of 4 ranks on 2 cores takes 30 µs with it and 7 without.
const yielding = "mpi_yield_when_idle"

// yields asks the library, which has been started, by the tool interface of the MPI
// standard. One that has no such variable does not yield.
func (l *library) yields() bool {
	call := func(symbol string, args ...uintptr) bool {
		f, ok := l.find(symbol)
		if !ok {
			return false
		}
		code, _, _ := purego.SyscallN(f, args...)
		return int32(code) == 0
	}
	cells := &struct {
		name            [32]byte
		variable, value uintptr
		index, count    int32
	}{}
	copy(cells.name[:], yielding)
	var pins goruntime.Pinner // moves them from the stack, too
	pins.Pin(cells)
	defer pins.Unpin()
	if !call("MPI_T_init_thread", threadSerialized, pointer(&cells.count)) {
		return false
	}
	defer call("MPI_T_finalize")
	if !call("MPI_T_cvar_get_index", pointer(&cells.name), pointer(&cells.index)) ||
		!call("MPI_T_cvar_handle_alloc", uintptr(cells.index), 0, pointer(&cells.variable), pointer(&cells.count)) {
		return false
	}
	defer call("MPI_T_cvar_handle_free", pointer(&cells.variable))
	return cells.count == 1 && call("MPI_T_cvar_read", cells.variable, pointer(&cells.value)) && cells.value != 0
}
