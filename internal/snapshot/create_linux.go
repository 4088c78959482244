package snapshot

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Create makes the memory: a file without a name, closed on exec. It is given back when the
// last process that has it is gone.
func Create() (*os.File, error) {
	fd, err := unix.MemfdCreate(Name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("snapshot: memfd_create: %w; a filter of system calls, as containers have, forbids it: allow it there", err)
	}
	f := os.NewFile(uintptr(fd), Name)
	if err := unix.Ftruncate(fd, memoryEnds); err != nil {
		f.Close()
		return nil, fmt.Errorf("snapshot: ftruncate: %w", err)
	}
	return f, nil
}
