package rowstore

// A cleaning is segments that are being read so that their rows can be moved.
type cleaning struct {
	segments []int
	data     []byte // of all of them
	failed   []error
	done     chan struct{}
}

// clean begins to read segments of which few records live, if dead ones take more than a third of the file. n is how
// many segments are being written: it frees as many.
func (s *Store) clean(n int) {
	n = min(s.log.excess(), 2*n+2)
	if s.cleaning != nil || n <= 0 {
		return
	}
	c := &cleaning{done: make(chan struct{})}
	c.segments = s.log.emptiest(n, func(segment int) bool {
		for _, b := range s.batches { // not all of its records are there yet
			for _, r := range b.runs {
				if s.log.segment(r.at) == segment {
					return true
				}
			}
		}
		return false
	})
	for _, segment := range c.segments {
		s.log.state[segment] = moved
	}
	c.failed = make([]error, len(c.segments))
	size := s.log.size * s.record
	c.data = s.memory(len(c.segments) * size)
	s.cleaning = c
	go func() {
		defer close(c.done)
		for i, segment := range c.segments {
			c.failed[i] = s.readRecords(c.data[i*size:(i+1)*size], segment*s.log.size, -1)
		}
	}()
}

// memory returns n bytes.
func (s *Store) memory(n int) []byte {
	if data := s.room(); cap(data) >= n {
		return data[:n]
	}
	return make([]byte, n)
}

// relocate puts the rows of segments that have been read into the batch of this call, before any that lose their slots in it.
// Of rows that are in memory too it forgets the record: they are written when they lose their slots. A record
// that is damaged moves as it is, and one that does not say whose it is stays, with its segment. It does not wait for the
// disk, unless the file would grow without end.
func (s *Store) relocate() {
	c := s.cleaning
	if c == nil {
		return
	}
	select {
	case <-c.done:
	default:
		if !s.log.swollen() || s.await(c.done, -1, "reading") != nil {
			return // a disk that does not answer fails the next call that needs it
		}
	}
	s.cleaning = nil
	for i, segment := range c.segments {
		if c.failed[i] != nil {
			continue // its rows stay, and whoever wants one is told why it cannot be read
		}
		s.stats.BytesRead += s.log.size * s.record
		for k := range s.log.size {
			at := i*s.log.size + k
			record := c.data[at*s.record : (at+1)*s.record]
			row := owner(record)
			if row >= s.c.Rows {
				continue
			}
			if its, ok := s.log.find(row); !ok || its != segment*s.log.size+k {
				continue // it is dead
			}
			slot, held := s.find(row)
			switch {
			case held && *s.word(slot)&flying == 0:
				*s.word(slot) |= dirty
				s.log.forget(row)
			case s.pending(row) != nil:
				s.log.forget(row)
			default:
				s.append(row, record)
			}
		}
	}
	s.spare = append(s.spare, c.data[:0])
}

// endCleaning waits until no segment is being read, and leaves the rows where they are.
func (s *Store) endCleaning() error {
	c := s.cleaning
	if c == nil {
		return nil
	}
	if err := s.await(c.done, -1, "reading"); err != nil {
		return err
	}
	for _, segment := range c.segments {
		if s.log.state[segment] == moved {
			s.log.state[segment] = full
		}
	}
	s.cleaning, s.spare = nil, append(s.spare, c.data[:0])
	return nil
}
