package comm

import (
	"sync"
	"sync/atomic"
)

// shared is what all communicators split from one world share on one rank.
type shared struct {
	mu       sync.Mutex
	attrs    map[any]any
	ledger   *ledger
	recorder atomic.Pointer[Recording]
	wrap     atomic.Pointer[func(Backend, []int) Backend] // see Internals.Wrap; nil: none
	started  atomic.Int64                                 // see Internals.Started
}

func newShared() *shared {
	return &shared{attrs: map[any]any{}, ledger: &ledger{accounts: map[*account]struct{}{}, past: newStats()}}
}

func (s *shared) attr(key any, make func() any) any {
	s.mu.Lock()
	v, ok := s.attrs[key]
	s.mu.Unlock()
	if ok {
		return v
	}
	v = make()
	s.mu.Lock()
	defer s.mu.Unlock()
	if first, ok := s.attrs[key]; ok {
		return first
	}
	s.attrs[key] = v
	return v
}
