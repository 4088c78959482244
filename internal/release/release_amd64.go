//go:build !race

package release

import (
	"sync/atomic"
	"unsafe"
)

// Store stores n; who loads it sees all earlier stores too. On amd64 a plain store is enough.
func Store(p *atomic.Uint64, n uint64) { *(*uint64)(unsafe.Pointer(p)) = n }
