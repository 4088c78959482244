package rowstore

import (
	"fmt"
	"slices"
)

// How large the records are, about, that are read or written at a time for whole tables. Those that are read lie anywhere
// in the log: the more of them are asked for, the nearer they are to each other in the order of the file, and the more
// come with one read.
const (
	readBytes  = 64 << 20
	writeBytes = 4 << 20
)

// ReadRows sets b to a field of consecutive rows, beginning with row first, as they are now. No
// slot changes hands.
func (s *Store) ReadRows(number, first int, b []byte) error {
	if err := s.still(); err != nil {
		return err
	}
	f := s.fields[number]
	scratch := make([]byte, s.record)
	return s.pieces(f, first, readBytes, b, func(first int, its []byte) error {
		var file []item
		var fresh []int
		of := func(row int) []byte { return its[(row-first)*f.width:][:f.width] }
		for row := first; row < first+len(its)/f.width; row++ {
			if slot, held := s.find(row); held {
				copy(of(row), f.memory[slot*f.width:])
			} else if at, ok := s.log.find(row); ok {
				file = append(file, item{row: row, at: at})
			} else {
				fresh = append(fresh, row)
			}
		}
		r := s.readAll(file, new([]item), func(it item, record []byte) { copy(of(it.row), record[f.at:]) }, func() {
			for _, row := range fresh {
				s.freshRecord(scratch, row)
				copy(of(row), scratch[f.at:])
			}
		})
		s.stats.BytesRead += r.bytes
		return r.err
	})
}

// WriteRows sets a field of consecutive rows, beginning with row first, to b. After an error it
// has done so for some of them.
func (s *Store) WriteRows(number, first int, b []byte) error {
	if err := s.still(); err != nil {
		return err
	}
	f := s.fields[number]
	derived := slices.ContainsFunc(s.fields, func(f field) bool { return f.begin != nil })
	buffer := make([]byte, min(s.piece(writeBytes), len(b)/max(f.width, 1))*s.record)
	return s.pieces(f, first, writeBytes, b, func(row int, its []byte) error {
		var rows []int   // those that have no slot
		var file []item  // those of them that the file has
		var places []int // by rows: where its record goes, -1: where there is room
		record := func(i int) []byte { return buffer[i*s.record : (i+1)*s.record] }
		fresh := 0
		for i := range len(its) / f.width {
			if slot, held := s.find(row + i); held {
				copy(f.memory[slot*f.width:], its[i*f.width:(i+1)*f.width])
				*s.word(slot) |= dirty
				continue
			}
			at, ok := s.log.find(row + i)
			if ok && len(s.fields) > 1 {
				file = append(file, item{row: row + i, slot: len(rows), at: at})
			} else if !ok {
				if number > 0 || derived {
					s.freshRecord(record(len(rows)), row+i)
				} else {
					clear(record(len(rows))) // its first field is set below
				}
				fresh++
			}
			rows, places = append(rows, row+i), append(places, at)
		}
		r := s.readAll(file, new([]item), func(it item, from []byte) { copy(record(it.slot), from) }, func() {})
		s.stats.BytesRead += r.bytes
		if r.err != nil {
			return r.err
		}
		for i, its := range rows {
			copy(record(i)[f.at:f.at+f.width], b[(its-first)*f.width:])
			seal(record(i), its)
		}
		return s.writeWhole(buffer, rows, places, fresh)
	})
}

// writeWhole writes the records of rows to places. A place of -1, of which there are fresh, stands for any that is free.
func (s *Store) writeWhole(records []byte, rows, places []int, fresh int) error {
	runs, err := s.log.give(fresh, false)
	if err != nil {
		return s.wrap(-1, err)
	}
	var room []int // that is left of runs
	for _, r := range runs {
		for at := r.at; at < r.at+r.n; at++ {
			room = append(room, at)
		}
	}
	defer func() { // after an error
		for _, at := range room {
			s.log.drop(at)
		}
	}()
	next := 0 // of room
	for i := range places {
		if places[i] < 0 {
			places[i] = room[next]
			next++
		}
	}
	for i := 0; i < len(rows); {
		n := 1
		for i+n < len(rows) && places[i+n] == places[i]+n && (n+1)*s.record <= segmentBytes {
			n++
		}
		its := records[i*s.record : (i+n)*s.record]
		if err := s.writeRecords(its, places[i], rows[i:i+n]); err != nil {
			return err
		}
		s.stats.BytesWritten += len(its)
		for end := i + n; i < end; i++ {
			if _, ok := s.log.find(rows[i]); !ok {
				s.log.set(rows[i], places[i])
				room = room[1:]
			}
		}
	}
	return nil
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
	if err := s.drain(); err != nil {
		return err
	}
	return s.endCleaning()
}

// piece returns how many rows have records of so many bytes.
func (s *Store) piece(bytes int) int { return max(1, bytes/s.record) }

// pieces calls each for the rows of records of so many bytes at a time, from row first on, with their part of b.
func (s *Store) pieces(f field, first, bytes int, b []byte, each func(row int, its []byte) error) error {
	n := s.piece(bytes)
	for row := first; len(b) > 0; row += n {
		its := b[:min(n*f.width, len(b))]
		b = b[len(its):]
		if err := each(row, its); err != nil {
			return err
		}
	}
	return nil
}
