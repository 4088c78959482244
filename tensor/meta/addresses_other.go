//go:build !linux

package meta

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/mem"
)

// addresses is an Allocator of pages that the kernel gives when they are touched.
type addresses struct{ mem.System }

// wipe makes bytes zero.
func wipe(p unsafe.Pointer, bytes int) { clear(unsafe.Slice((*byte)(p), bytes)) }
