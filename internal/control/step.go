package control

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// SetStep sets the step that rank's program is at, 0 or more.
func (s *Segment) SetStep(rank, step int) { s.block(rank).step.Store(int64(step) + 1) }

// Step returns the step of the last SetStep; ok is false if there was none.
func (s *Segment) Step(rank int) (step int, ok bool) {
	n := s.block(rank).step.Load()
	return int(n - 1), n > 0
}

// SetSaved says that rank has just saved a state from which the job can be resumed.
func (s *Segment) SetSaved(rank int) { s.block(rank).savedAt.Store(time.Now().UnixNano()) }

// Saved returns when rank called SetSaved last; the zero time if never.
func (s *Segment) Saved(rank int) time.Time {
	n := s.block(rank).savedAt.Load()
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}

// SetAsked says that a signal has asked rank to end.
func (s *Segment) SetAsked(rank int, signal syscall.Signal) {
	s.block(rank).asked.Store(int32(signal))
}

// Asked returns the signal that has asked rank to end; ok is false if none has.
func (s *Segment) Asked(rank int) (signal syscall.Signal, ok bool) {
	n := s.block(rank).asked.Load()
	return syscall.Signal(n), n > 0 && n < 65
}

// IsWorld reports whether a communicator, by the offset of its region, is the one
// of all ranks.
func (s *Segment) IsWorld(comm uint64) bool { return comm == s.WorldComm() }

// WorldComm returns the number of the communicator of all ranks.
func (s *Segment) WorldComm() uint64 { return regionBase(s.ranks) }

// Watch maps the segment of another launcher's job for reading only. A method that writes to it
// crashes the program. file is the control file, see Files.
func Watch(file *os.File) (*Segment, error) {
	if err := checkSize(file, totalBytes); err != nil {
		return nil, fmt.Errorf("control: Watch: %w", err)
	}
	base, err := mapForReading(file, totalBytes)
	if err != nil {
		return nil, fmt.Errorf("control: Watch: %w", err)
	}
	s := &Segment{base: base}
	h := s.header()
	switch {
	case h.magic != magic:
		err = fmt.Errorf("control: Watch: %s is not a control segment of gorun", file.Name())
	case h.version != version:
		err = fmt.Errorf("control: Watch: the job's layout is %#x and this program's %#x; use the gorun that started it", h.version, version)
	case h.ranks < 1 || h.ranks > MaxRanks:
		err = fmt.Errorf("control: Watch: the segment has %d ranks; it is damaged", h.ranks)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.ranks = int(h.ranks)
	return s, nil
}
