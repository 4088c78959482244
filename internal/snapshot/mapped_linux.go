package snapshot

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapped returns n bytes of a file from byte at on, which is where a page begins; nil if that cannot be, or m is no
// file. They stay mapped until the process ends.
func mapped(m Memory, at int64, n int) []byte {
	f, ok := m.(*os.File)
	if !ok || n == 0 {
		return nil
	}
	b, err := unix.Mmap(int(f.Fd()), at, n, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil
	}
	return b
}

// grow returns the first n bytes of room, which is n bytes of m from byte at on, or more. It takes the pages from the
// system first, so that to write there cannot fail; nil if it cannot have them.
func (r *Room) grow(m Memory, at int64, n int) []byte {
	f, ok := m.(*os.File)
	if !ok || n == 0 {
		return nil
	}
	if n <= len(r.pages) {
		return r.pages[:n]
	}
	if r.pages != nil {
		_ = unix.Munmap(r.pages) // it was mapped
		r.pages = nil
	}
	fd := int(f.Fd())
	for err := error(unix.EINTR); err != nil; {
		if err = unix.Fallocate(fd, 0, at, int64(n)); err != nil && err != unix.EINTR {
			return nil
		}
	}
	pages, err := unix.Mmap(fd, at, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil
	}
	r.pages = pages
	return pages
}
