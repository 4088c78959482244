//go:build race || !amd64

package control

import "sync/atomic"

// release stores n; all earlier stores are visible before it.
func release(p *atomic.Uint64, n uint64) { p.Store(n) }
