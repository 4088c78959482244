//go:build !linux

package mem

import (
	"sync"
	"unsafe"
)

// System is an Allocator of this process' own memory, aligned to 64 bytes.
// Here it is Go's heap. The zero value is ready, and safe for concurrent use.
type System struct{}

// held keeps what System has handed out reachable: tensors hold plain addresses.
var held sync.Map

// Alloc returns bytes of zeroed memory.
func (System) Alloc(bytes int) (unsafe.Pointer, error) {
	raw := make([]byte, max(bytes, 1)+64)
	skip := -uintptr(unsafe.Pointer(&raw[0])) & 63
	p := unsafe.Pointer(&raw[skip])
	held.Store(p, raw)
	return p, nil
}

// Free forgets what Alloc returned.
func (System) Free(p unsafe.Pointer, bytes int) { held.Delete(p) }

// Populate touches every page of p[:bytes] once and keeps the contents.
func Populate(p unsafe.Pointer, bytes int) {
	b := unsafe.Slice((*byte)(p), bytes)
	for i := 0; i < bytes; i += 4096 {
		b[i] |= 0
	}
}
