package control

import (
	"fmt"
	"unsafe"
)

// line is the size of a cache line; regions begin at one.
const line = 64

// Arena returns the memory that rank owns and all can read and write.
func (s *Segment) Arena(rank int) (base unsafe.Pointer, bytes int) {
	return unsafe.Add(s.arenas, rank*s.arena), s.arena
}

// Reserve accounts for bytes of an arena that a rank begins to use. It returns
// an error if all ranks together would use more than the job may.
func (s *Segment) Reserve(bytes int) error {
	h := s.header()
	if used := h.used.Add(int64(bytes)); uint64(used) > h.memoryBytes {
		h.used.Add(int64(-bytes))
		return fmt.Errorf("the ranks of this host use %d bytes of shared memory and may use %d; use smaller tensors, or raise the limit",
			used-int64(bytes), h.memoryBytes)
	}
	return nil
}

// Unreserve undoes a Reserve of as many bytes.
func (s *Segment) Unreserve(bytes int) { s.header().used.Add(int64(-bytes)) }

// NewRegion reserves zeroed memory of the control segment for a communicator
// and returns its offset, which the other ranks pass to Region. A region is never
// freed; ranks may use it for another communicator.
func (s *Segment) NewRegion(bytes int) (offset uint64, err error) {
	size := (uint64(bytes) + line - 1) &^ (line - 1)
	end := s.header().next.Add(size)
	if end < size || end > totalBytes {
		s.header().next.Add(-size)
		return 0, fmt.Errorf("control: NewRegion: no room for %d bytes; the job uses too many communicators at once: "+
			"make each once and keep it, and keep none that is no longer used", bytes)
	}
	return end - size, nil
}

// Region returns the memory at an offset that NewRegion returned to some rank.
func (s *Segment) Region(offset uint64, bytes int) (unsafe.Pointer, error) {
	if offset < regionBase(s.ranks) || offset%line != 0 || bytes < 0 || offset > totalBytes || uint64(bytes) > totalBytes-offset {
		return nil, fmt.Errorf("control: Region: %d bytes at %d are outside the segment; a rank has damaged it", bytes, offset)
	}
	return unsafe.Add(s.base, offset), nil
}

// World returns the offset of the first region, which all ranks share. bytes
// must be the same on all of them.
func (s *Segment) World(bytes int) (offset uint64, err error) {
	base := regionBase(s.ranks)
	size := (uint64(bytes) + line - 1) &^ (line - 1)
	if size > totalBytes-base {
		return 0, fmt.Errorf("control: World: no room for %d bytes for %d ranks; use fewer ranks on this host", bytes, s.ranks)
	}
	s.header().next.CompareAndSwap(base, base+size)
	return base, nil
}
