package rowstore

import (
	"os"
	"syscall"
	"unsafe"
)

// newMapping maps the first size bytes of a file, which may be shorter; nil if the system does not.
func newMapping(f *os.File, size int) *mapping {
	b, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil
	}
	return &mapping{bytes: b, cached: cached}
}

// cached is mincore(2).
func cached(bytes, pages []byte) (ok bool) {
	_, _, errno := syscall.Syscall(syscall.SYS_MINCORE, uintptr(unsafe.Pointer(&bytes[0])), uintptr(len(bytes)),
		uintptr(unsafe.Pointer(&pages[0])))
	return errno == 0
}

func (m *mapping) close() { _ = syscall.Munmap(m.bytes) } // it was mapped
