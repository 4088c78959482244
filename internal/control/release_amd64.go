//go:build !race

package control

import (
	"sync/atomic"
	"unsafe"
)

// release stores n after all that was stored before. Here every store does: the
// locked exchange of an atomic one also holds back later loads, which nobody needs,
// and costs as much as all the rest of Log.
func release(p *atomic.Uint64, n uint64) { *(*uint64)(unsafe.Pointer(p)) = n }
