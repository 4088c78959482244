package meta

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/internal/mem"
)

// addresses is an Allocator of memory that costs nothing until it is touched, however much it is.
type addresses struct{}

var _ mem.Allocator = addresses{}

// pages rounds bytes up to whole pages.
func pages(bytes int) uintptr { return (uintptr(max(bytes, 1)) + 4095) &^ 4095 }

// Alloc reserves addresses. MAP_NORESERVE has the kernel not ask whether there is as much memory.
func (addresses) Alloc(bytes int) (unsafe.Pointer, error) {
	p, err := unix.MmapPtr(-1, 0, nil, pages(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("meta: Alloc: addresses for %d bytes: %w", bytes, err)
	}
	return p, nil
}

// Free gives addresses back.
func (addresses) Free(p unsafe.Pointer, bytes int) {
	if err := unix.MunmapPtr(p, pages(bytes)); err != nil {
		panic(fmt.Sprintf("meta: Free: %d bytes at %p, which Alloc did not return: %v", bytes, p, err))
	}
}
