package rowstore

import (
	"sync"
)

// An item is a row and the slot that it is read into.
type item struct{ row, slot int }

// A flight is rows that are being read in the background.
type flight struct {
	items  []item
	done   chan struct{}
	failed []item // those that could not be read
	err    error  // of the first of these
	bytes  int    // read
}

const (
	readers  = 8         // goroutines that read at a time
	fewItems = 32        // for one of them
	runBytes = 256 << 10 // that are read or written at a time
	gapBytes = 16 << 10  // of rows that nobody wants between two that are read at a time
)

// start begins to read items, which have their slots.
func (s *Store) start(items []item) *flight {
	if len(items) == 0 {
		return nil
	}
	f := &flight{items: items, done: make(chan struct{})}
	sortItems(items)
	var file []item
	var fresh []item
	for _, it := range items {
		switch record := s.pending(it.row); {
		case record != nil:
			s.fill(it.slot, record)
			s.flags[it.slot] |= dirty
		case s.isWritten(it.row):
			file = append(file, it)
		default:
			fresh = append(fresh, it)
		}
		s.flags[it.slot] |= flying
	}
	s.flights = append(s.flights, f)
	go s.fly(f, file, fresh)
	return f
}

// fly reads the items of file and makes those that are fresh.
func (s *Store) fly(f *flight, file, fresh []item) {
	defer close(f.done)
	var mu sync.Mutex // guards the results
	var all sync.WaitGroup
	n := max(fewItems, (len(file)+readers-1)/readers)
	for len(file) > 0 {
		its := file[:min(n, len(file))]
		file = file[len(its):]
		all.Go(func() {
			bytes, failed, err := s.read(its)
			mu.Lock()
			defer mu.Unlock()
			f.bytes += bytes
			f.failed = append(f.failed, failed...)
			if f.err == nil {
				f.err = err
			}
		})
	}
	for _, it := range fresh {
		s.fresh(it.slot, it.row)
	}
	all.Wait()
}

// read reads items into their slots, those that lie close to each other at once. It returns those that
// could not be read, and the error of the first.
func (s *Store) read(items []item) (bytes int, failed []item, first error) {
	var b []byte
	for len(items) > 0 {
		n := 1
		for n < len(items) && (items[n].row-items[n-1].row-1)*s.record <= gapBytes &&
			(items[n].row+1-items[0].row)*s.record <= runBytes {
			n++
		}
		row := items[0].row
		size := (items[n-1].row + 1 - row) * s.record
		if cap(b) < size {
			b = make([]byte, max(size, min(runBytes, 4*size)))
		}
		b = b[:size]
		err := s.readRecords(b, row)
		bytes += size
		for _, it := range items[:n] {
			record := b[(it.row-row)*s.record:][:s.record]
			its := err
			if its != nil && n > 1 { // another of them may be at fault
				its = s.readRecords(record, it.row)
			}
			if its == nil {
				if its = check(record, it.row); its != nil {
					its = s.wrap(it.row, its)
				}
			}
			if its == nil {
				s.fill(it.slot, record)
				continue
			}
			failed = append(failed, it)
			if first == nil {
				first = its
			}
		}
		items = items[n:]
	}
	return bytes, failed, first
}

// load reads items now.
func (s *Store) load(items []item) error {
	f := s.start(items)
	if f == nil {
		return nil
	}
	if err := s.await(f.done, f.items[0].row, "reading"); err != nil {
		return err
	}
	return s.settle(f)
}

// land waits for all that is being read. Rows that could not be read have no slot then.
func (s *Store) land() error {
	for len(s.flights) > 0 {
		f := s.flights[0]
		if err := s.await(f.done, f.items[0].row, "reading"); err != nil {
			return err
		}
		_ = s.settle(f) // who wants such a row reads it again, and returns the error
	}
	return nil
}

// settle takes over what a flight has read, which has ended.
func (s *Store) settle(f *flight) error {
	for i := range s.flights {
		if s.flights[i] == f {
			s.flights = append(s.flights[:i], s.flights[i+1:]...)
			break
		}
	}
	for _, it := range f.items {
		s.flags[it.slot] &^= flying
	}
	for _, it := range f.failed {
		s.tags[it.slot], s.flags[it.slot] = 0, 0
	}
	s.stats.BytesRead += f.bytes
	return f.err
}
