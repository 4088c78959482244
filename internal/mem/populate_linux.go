package mem

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugeBytes is the size of a huge page on amd64, and on arm64 with pages of 4 KiB.
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
// page. Shared memory gets huge pages where they fit, by MADV_COLLAPSE (Linux 6.1), even
// if the system makes none by itself: then rows in random order are read twice as fast,
// and the first touch costs a third. It keeps the contents. p must be page-aligned.
func Populate(p unsafe.Pointer, bytes int) {
	collapse(p, bytes)
	if unix.Madvise(unsafe.Slice((*byte)(p), pages(bytes)), unix.MADV_POPULATE_WRITE) != nil {
		touch(p, bytes)
	}
}

// collapseBytes is how many bytes one system call collapses. While it runs, for 0.2 to
// 5 ms a huge page depending on fragmentation, not even SIGKILL ends the process.
const collapseBytes = 16 << 20

// collapse puts huge pages where they fit into p[:bytes], as far as the kernel has them;
// the rest keeps small pages.
func collapse(p unsafe.Pointer, bytes int) {
	from := int(-uintptr(p) & (hugeBytes - 1))
	for end := from + (bytes-from)&^(hugeBytes-1); from < end; from += collapseBytes {
		n := min(collapseBytes, end-from)
		for i := from; i < from+n; i += hugeBytes { // one page of each, or there is nothing to collapse
			atomic.AddUint32((*uint32)(unsafe.Add(p, i)), 0)
		}
		_ = unix.Madvise(unsafe.Slice((*byte)(unsafe.Add(p, from)), n), unix.MADV_COLLAPSE)
	}
}
