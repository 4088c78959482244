//go:build !amd64 || race

package release

import "sync/atomic"

// Store stores n; who loads it sees all earlier stores too.
func Store(p *atomic.Uint64, n uint64) { p.Store(n) }
