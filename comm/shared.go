package comm

import (
	"sync"
	"sync/atomic"
)

// shared is what all communicators split from one world share on one rank.
type shared struct {
	mu       sync.Mutex
	attrs    map[any]any
	comms    []*Comm
	recorder atomic.Pointer[Recording]
	staging  atomic.Pointer[staging]
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

func (s *shared) join(c *Comm) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.comms = append(s.comms, c)
}

func (s *shared) all() []*Comm {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.comms[:len(s.comms):len(s.comms)]
}
