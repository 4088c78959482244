// Package mem manages the raw memory that tensors and collectives use.
//
// An Allocator hands out memory: the shared arena of a rank, anonymous pages of
// the process (System), a GPU. A Pool caches it and hands out the same addresses
// again, because the first touch of a page is expensive. A Block is one piece of a
// pool. A Scope owns the blocks that are allocated while it is open and gives them
// back when it closes.
//
// ReadMachine says how much memory the machine has, for all who ask.
//
// The memory is outside Go's heap: the garbage collector neither scans nor
// moves it, and nothing in it may hold a Go pointer.
package mem

import "unsafe"

// An Allocator hands out raw memory.
type Allocator interface {
	// Alloc returns bytes of memory (at least 1), aligned to 64 bytes at least.
	// Its contents are unspecified. The error names the sizes.
	Alloc(bytes int) (unsafe.Pointer, error)
	// Free takes back memory that Alloc returned for the same number of bytes.
	Free(p unsafe.Pointer, bytes int)
}
