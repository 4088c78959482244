package comm

import (
	"sync/atomic"

	"github.com/gorun-spmd/gorun/comm/backend"
)

// shared is what all communicators split from one world share on one rank.
type shared struct {
	attrs    backend.Attrs
	common   *backend.Attrs // see Internals.Common; those of this rank if it shares none
	ledger   *ledger
	recorder atomic.Pointer[Recording]
	wrap     atomic.Pointer[func(Backend, []int) Backend] // see Internals.Wrap; nil: none
	started  atomic.Int64                                 // see Internals.Started
	unheard  atomic.Pointer[Pending]                      // the first call that was started and failed, unless Wait has returned its error
}

func newShared() *shared {
	s := &shared{ledger: &ledger{accounts: map[*account]struct{}{}, past: newStats()}}
	s.common = &s.attrs
	return s
}
