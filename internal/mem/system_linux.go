package mem

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugeBytes is the size of a huge page on the machines we know.
const hugeBytes = 2 << 20

// System is an Allocator of anonymous pages of this process, page-aligned.
// Blocks of 2 MiB and more ask for huge pages. Memory that is freed goes back
// to the kernel at once. The zero value is ready, and safe for concurrent use.
type System struct{}

// Alloc maps bytes, rounded up to whole pages.
func (System) Alloc(bytes int) (unsafe.Pointer, error) {
	n := pages(bytes)
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("mem: Alloc: %d bytes of anonymous memory: %w", bytes, err)
	}
	if n >= hugeBytes {
		// Advice only: a kernel without huge pages refuses it, and nothing is lost.
		_ = unix.Madvise(unsafe.Slice((*byte)(p), n), unix.MADV_HUGEPAGE)
	}
	return p, nil
}

// Free unmaps what Alloc returned for the same number of bytes.
func (System) Free(p unsafe.Pointer, bytes int) {
	if err := unix.MunmapPtr(p, uintptr(pages(bytes))); err != nil {
		panic(fmt.Sprintf("mem: Free: %d bytes at %p, which Alloc did not return: %v", bytes, p, err))
	}
}

// Populate touches every page of p[:bytes] once, in the kernel where it can
// (MADV_POPULATE_WRITE, Linux 5.14), so that the first use does not fault page
// by page. It keeps the contents. p must be page-aligned.
func Populate(p unsafe.Pointer, bytes int) {
	if unix.Madvise(unsafe.Slice((*byte)(p), pages(bytes)), unix.MADV_POPULATE_WRITE) == nil {
		return
	}
	b := unsafe.Slice((*byte)(p), bytes)
	for i := 0; i < bytes; i += os.Getpagesize() {
		b[i] |= 0
	}
}

// pages rounds bytes up to whole pages.
func pages(bytes int) int {
	page := os.Getpagesize()
	return (max(bytes, 1) + page - 1) &^ (page - 1)
}
