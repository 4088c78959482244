package mem

import (
	"os"
	"sync/atomic"
	"unsafe"
)

// System is an Allocator of anonymous pages of this process, page-aligned. Blocks
// of 2 MiB and more ask for huge pages where there are any. Memory that is freed
// goes back to the kernel at once. The zero value is ready, and safe for
// concurrent use.
type System struct{}

// pages rounds bytes up to whole pages.
func pages(bytes int) int {
	page := os.Getpagesize()
	return (max(bytes, 1) + page - 1) &^ (page - 1)
}

// touch writes to every page of p[:bytes] and keeps the contents.
func touch(p unsafe.Pointer, bytes int) {
	for i := 0; i < bytes; i += os.Getpagesize() {
		atomic.AddUint32((*uint32)(unsafe.Add(p, i)), 0) // a store the compiler cannot drop
	}
}
