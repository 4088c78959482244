package control

import "github.com/gorun-spmd/gorun/internal/release"

// A Call is one collective as the flight recorder keeps it, in shared memory. Only the rank writes it, without atomics: a
// reader that is late by ringCalls calls may see it half overwritten.
type Call struct {
	Comm  uint64 // the communicator, by the offset of its region
	Seq   uint64 // the call's number in the communicator, from 1
	What  uint64 // the two words of its backend.Fingerprint
	Count uint64
}

// Log notes that rank, the caller's own, begins a call with a number of bytes. It costs a few plain
// stores.
func (s *Segment) Log(rank int, c Call, bytes int) {
	b := s.block(rank)
	n := b.calls.Load()
	b.ring[n%ringCalls] = c
	b.bytes += int64(bytes)
	release.Store(&b.calls, n+1)
}

// LastCall returns rank's last call; ok is false if it has made none.
func (s *Segment) LastCall(rank int) (c Call, ok bool) {
	b := s.block(rank)
	n := b.calls.Load()
	if n == 0 {
		return Call{}, false
	}
	return b.ring[(n-1)%ringCalls], true
}

// Calls returns how many calls rank has made, on all communicators. While it
// stays the same, the rank makes no progress.
func (s *Segment) Calls(rank int) uint64 { return s.block(rank).calls.Load() }

// Bytes returns how many bytes rank has handed to calls so far.
func (s *Segment) Bytes(rank int) int { return int(s.block(rank).bytes) }

// SetNote publishes rank's description of its call in a disagreement. stamp names the
// disagreement.
func (s *Segment) SetNote(rank int, stamp uint64, text string) {
	n := &s.block(rank).note
	n.stamp.Store(0)
	n.size.Store(uint32(copy(n.data[:], text)))
	n.stamp.Store(stamp)
}

// Note returns the text of rank's SetNote with this stamp; ok is false if there is none.
func (s *Segment) Note(rank int, stamp uint64) (text string, ok bool) {
	n := &s.block(rank).note
	if n.stamp.Load() != stamp {
		return "", false
	}
	return readText(n.data[:], n.size.Load()), true
}
