package rowstore

import "fmt"

// ReadRows sets b to a field of consecutive rows, beginning with row first, as they are now. No
// slot changes hands.
func (s *Store) ReadRows(number, first int, b []byte) error {
	if err := s.still(); err != nil {
		return err
	}
	f := s.fields[number]
	return s.pieces(f, first, b, func(row int, its, records []byte) error {
		for i := 0; i*f.width < len(its); i++ {
			to := its[i*f.width : (i+1)*f.width]
			slot, held := s.find(row + i)
			switch {
			case held:
				copy(to, f.memory[slot*f.width:])
			case s.isWritten(row + i):
				record := records[i*s.record : (i+1)*s.record]
				if err := check(record, row+i); err != nil {
					return s.wrap(row+i, err)
				}
				copy(to, record[f.at:])
			default:
				record := records[i*s.record : (i+1)*s.record]
				s.freshRecord(record, row+i)
				copy(to, record[f.at:])
			}
		}
		return nil
	})
}

// WriteRows sets a field of consecutive rows, beginning with row first, to b. After an error it
// has done so for some of them.
func (s *Store) WriteRows(number, first int, b []byte) error {
	if err := s.still(); err != nil {
		return err
	}
	f := s.fields[number]
	return s.pieces(f, first, b, func(row int, its, records []byte) error {
		n := len(its) / f.width
		begin := 0 // of the rows that have no slot and are to be written
		flush := func(end int) error {
			if begin == end {
				return nil
			}
			if err := s.writeRecords(records[begin*s.record:end*s.record], row+begin); err != nil {
				return err
			}
			s.stats.BytesWritten += (end - begin) * s.record
			for r := row + begin; r < row+end; r++ {
				s.written[r/64] |= 1 << (r % 64)
			}
			return nil
		}
		for i := range n {
			from, record := its[i*f.width:(i+1)*f.width], records[i*s.record:(i+1)*s.record]
			if slot, held := s.find(row + i); held {
				copy(f.memory[slot*f.width:], from)
				s.mark(slot)
				if err := flush(i); err != nil {
					return err
				}
				begin = i + 1
				continue
			}
			switch {
			case !s.isWritten(row + i):
				s.freshRecord(record, row+i)
			case len(s.fields) > 1:
				if err := check(record, row+i); err != nil {
					return s.wrap(row+i, err)
				}
			}
			copy(record[f.at:], from)
			seal(record, row+i)
		}
		return flush(n)
	})
}

// Sync writes what is to be written, and makes the file say whether its writes have failed.
func (s *Store) Sync() error {
	if err := s.drain(); err != nil {
		return err
	}
	if err := s.file.Sync(); err != nil {
		return s.wrap(-1, fmt.Errorf("what was written is lost: %w; load the last checkpoint", err))
	}
	return nil
}

// still waits until nothing is read or written in the background.
func (s *Store) still() error {
	s.begin()
	if err := s.land(); err != nil {
		return err
	}
	return s.drain()
}

// pieces calls each for some rows at a time, with their part of b and their records, those that the file
// has.
func (s *Store) pieces(f field, first int, b []byte, each func(row int, its, records []byte) error) error {
	n := max(1, runBytes/s.record)
	buffer := make([]byte, min(n, len(b)/max(f.width, 1))*s.record)
	for row := first; len(b) > 0; row += n {
		its := b[:min(n*f.width, len(b))]
		b = b[len(its):]
		records := buffer[:len(its)/f.width*s.record]
		lo, hi := -1, 0 // the first row that the file has, and after the last one
		for r := row; r < row+len(its)/f.width; r++ {
			if s.isWritten(r) {
				if _, held := s.find(r); held {
					continue // it need not be there yet
				}
				if lo < 0 {
					lo = r
				}
				hi = r + 1
			}
		}
		if lo >= 0 {
			if err := s.readRecords(records[(lo-row)*s.record:(hi-row)*s.record], lo); err != nil {
				return err
			}
			s.stats.BytesRead += (hi - lo) * s.record
		}
		if err := each(row, its, records); err != nil {
			return err
		}
	}
	return nil
}
