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
// Without huge pages an integer that is written among floats takes 4 KiB, and not 2 MiB.
func (addresses) Alloc(bytes int) (unsafe.Pointer, error) {
	p, err := unix.MmapPtr(-1, 0, nil, pages(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("meta: Alloc: addresses for %d bytes: %w", bytes, err)
	}
	_ = unix.Madvise(unsafe.Slice((*byte)(p), pages(bytes)), unix.MADV_NOHUGEPAGE) // a kernel without them refuses
	return p, nil
}

// Free gives addresses back.
func (addresses) Free(p unsafe.Pointer, bytes int) {
	if err := unix.MunmapPtr(p, pages(bytes)); err != nil {
		panic(fmt.Sprintf("meta: Free: %d bytes at %p, which Alloc did not return: %v", bytes, p, err))
	}
}

// wipe makes bytes zero. It gives whole pages of them back, which to clear would be to have.
func wipe(p unsafe.Pointer, bytes int) {
	b := unsafe.Slice((*byte)(p), bytes)
	first := int(-uintptr(p) & 4095)
	last := bytes - int((uintptr(p)+uintptr(bytes))&4095)
	if first >= last || unix.Madvise(b[first:last], unix.MADV_DONTNEED) != nil {
		clear(b)
		return
	}
	clear(b[:first])
	clear(b[last:])
}
