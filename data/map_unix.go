//go:build unix

package data

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func mapFile(f *os.File, size int) (file, error) {
	bytes, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return file{}, fmt.Errorf("%s: mmap: %w", f.Name(), err)
	}
	return file{bytes: bytes, unmap: func() error { return unix.Munmap(bytes) }}, nil
}
