//go:build unix

package mem

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Alloc maps bytes, rounded up to whole pages.
func (System) Alloc(bytes int) (unsafe.Pointer, error) {
	n := pages(bytes)
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("mem: Alloc: %d bytes of anonymous memory: %w", bytes, err)
	}
	preferHuge(p, n)
	return p, nil
}

// Free unmaps memory that Alloc returned for the same number of bytes.
func (System) Free(p unsafe.Pointer, bytes int) {
	if err := unix.MunmapPtr(p, uintptr(pages(bytes))); err != nil {
		panic(fmt.Sprintf("mem: Free: %d bytes at %p, which Alloc did not return: %v", bytes, p, err))
	}
}
