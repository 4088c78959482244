package mem

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Alloc commits bytes, rounded up to whole pages.
func (System) Alloc(bytes int) (unsafe.Pointer, error) {
	addr, err := windows.VirtualAlloc(0, uintptr(pages(bytes)), windows.MEM_COMMIT|windows.MEM_RESERVE, windows.PAGE_READWRITE)
	if err != nil {
		return nil, fmt.Errorf("mem: Alloc: %d bytes of virtual memory: %w", bytes, err)
	}
	return *(*unsafe.Pointer)(unsafe.Pointer(&addr)), nil // not Go's memory: the collector ignores it
}

// Free releases memory that Alloc returned.
func (System) Free(p unsafe.Pointer, bytes int) {
	if err := windows.VirtualFree(uintptr(p), 0, windows.MEM_RELEASE); err != nil {
		panic(fmt.Sprintf("mem: Free: %d bytes at %p, which Alloc did not return: %v", bytes, p, err))
	}
}
