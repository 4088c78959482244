//go:build race || !amd64

package control

import "sync/atomic"

// release stores n after all that was stored before.
func release(p *atomic.Uint64, n uint64) { p.Store(n) }
