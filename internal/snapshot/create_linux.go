package snapshot

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Create makes the memory: a file without a name in a file system, closed on exec. In /proc it is called name. It is given back when
// the last process that has it is gone.
func Create() (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("snapshot: memfd_create: %w; a filter of system calls, as containers have, forbids it: allow it there", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := unix.Ftruncate(fd, memoryEnds); err != nil {
		f.Close()
		return nil, fmt.Errorf("snapshot: ftruncate: %w", err)
	}
	return f, nil
}

// Drop gives back the memory of the slot of every rank in which the snapshot with this number lies. Ranks of an earlier
// attempt have left it there; they may have been more, or on other hosts.
func Drop(f *os.File, sequence int) error {
	const mode = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	if err := unix.Fallocate(int(f.Fd()), mode, slotAt(sequence, 0), MaxRanks*SlotBytes); err != nil {
		return fmt.Errorf("snapshot: fallocate: %w", err)
	}
	return nil
}
