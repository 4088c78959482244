package control

import (
	"fmt"
	"unsafe"
)

// line is the size of a cache line; regions begin at one.
const line = 64

// Arena returns the memory that rank owns and all can read and write.
func (s *Segment) Arena(rank int) (base unsafe.Pointer, bytes int) { return s.arenas[rank], s.arena }

// NewRegion reserves zeroed memory of the control segment for a communicator
// and returns its offset, which its other ranks pass to Region. Regions are
// never taken back.
func (s *Segment) NewRegion(bytes int) (offset uint64, err error) {
	size := (uint64(bytes) + line - 1) &^ (line - 1)
	end := s.header().next.Add(size)
	if end < size || end > totalBytes {
		s.header().next.Add(-size)
		return 0, fmt.Errorf("control: NewRegion: no room for %d bytes; the job has made too many communicators (each lives until its end): make them once and keep them", bytes)
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
