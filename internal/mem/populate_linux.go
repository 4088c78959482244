package mem

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugeBytes is the size of a huge page on the machines we know.
const hugeBytes = 2 << 20

// preferHuge asks for huge pages. It is advice: a kernel without them refuses, and
// nothing is lost.
func preferHuge(p unsafe.Pointer, bytes int) {
	if bytes >= hugeBytes {
		_ = unix.Madvise(unsafe.Slice((*byte)(p), bytes), unix.MADV_HUGEPAGE)
	}
}

// Populate touches every page of p[:bytes] once, in the kernel where it can
// (MADV_POPULATE_WRITE, Linux 5.14), so that the first use does not fault page by
// page. It keeps the contents. p must be page-aligned.
func Populate(p unsafe.Pointer, bytes int) {
	if unix.Madvise(unsafe.Slice((*byte)(p), pages(bytes)), unix.MADV_POPULATE_WRITE) != nil {
		touch(p, bytes)
	}
}
