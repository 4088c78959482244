//go:build !race

package control

import (
	"sync/atomic"
	"unsafe"
)

// release stores n; all earlier stores are visible before it. On amd64 a plain store is enough.
// An atomic store is a locked exchange, which also holds back later loads. Nobody needs that
// here, and it costs as much as the rest of Log.
func release(p *atomic.Uint64, n uint64) { *(*uint64)(unsafe.Pointer(p)) = n }
