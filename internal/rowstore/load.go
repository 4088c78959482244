package rowstore

import (
	"slices"
	"sync"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/simd"
)

// An item is a row and the slot that it is read into; at is the number of its record in the file.
type item struct{ row, slot, at int }

// A flight is rows that are being read in the background.
type flight struct {
	items []item
	done  chan struct{}
	reading
}

// A reading is what came of reading records.
type reading struct {
	bytes  int
	failed []item // those that could not be read
	err    error  // of that of them which is first in the table
}

const (
	readers  = 8         // goroutines that read at a time
	fewItems = 32        // for one of them
	runBytes = 256 << 10 // that are read at a time
	gapBytes = 4 << 10   // of records that nobody wants between two that are read at a time: more takes longer than another read
)

// start begins to read items, which have their slots.
func (s *Store) start(items []item) *flight {
	if len(items) == 0 {
		return nil
	}
	f := &flight{items: items, done: make(chan struct{})}
	var file []item
	var fresh []item
	for k, it := range items {
		if k+block < len(items) {
			simd.Prefetch(unsafe.Pointer(&s.log.where[items[k+block].row]), 1)
		}
		if record := s.pending(it.row); record != nil {
			s.fill(it.slot, record)
			*s.word(it.slot) |= dirty
		} else if at, ok := s.log.find(it.row); ok {
			it.at = at
			file = append(file, it)
		} else {
			fresh = append(fresh, it)
		}
		*s.word(it.slot) |= flying
	}
	s.flights = append(s.flights, f)
	go func() {
		defer close(f.done)
		f.reading = s.readAll(file, func(it item, record []byte) { s.fill(it.slot, record) }, func() {
			for _, it := range fresh {
				s.fresh(it.slot, it.row)
			}
		})
	}()
	return f
}

// readAll reads items, several at a time, and calls take for each, on several goroutines; meanwhile it calls also.
func (s *Store) readAll(items []item, take func(it item, record []byte), also func()) (all reading) {
	var mu sync.Mutex // guards all
	var running sync.WaitGroup
	items = inOrder(items)
	n := max(fewItems, (len(items)+readers-1)/readers)
	for its := range slices.Chunk(items, n) {
		running.Go(func() {
			r := s.read(its, take)
			mu.Lock()
			defer mu.Unlock()
			all.add(r)
		})
	}
	also()
	running.Wait()
	return all
}

// inOrder sorts items by at, a digit after the other from the lowest on, and returns them; it changes items.
func inOrder(items []item) []item {
	const digit = 11
	most := 0
	for _, it := range items {
		most = max(most, it.at)
	}
	other := make([]item, len(items))
	for shift := 0; most>>shift > 0; shift += digit {
		var begin [1<<digit + 1]int // of those with each digit
		for _, it := range items {
			begin[it.at>>shift&(1<<digit-1)+1]++
		}
		for d := range 1 << digit {
			begin[d+1] += begin[d]
		}
		for _, it := range items {
			d := it.at >> shift & (1<<digit - 1)
			other[begin[d]] = it
			begin[d]++
		}
		items, other = other, items
	}
	return items
}

// add adds what came of reading other records.
func (r *reading) add(o reading) {
	if o.err != nil && (r.err == nil || minRow(o.failed) < minRow(r.failed)) {
		r.err = o.err
	}
	r.bytes, r.failed = r.bytes+o.bytes, append(r.failed, o.failed...)
}

func minRow(items []item) int {
	return slices.MinFunc(items, func(a, b item) int { return a.row - b.row }).row
}

// read reads items, sorted by at, those that lie close to each other at once.
func (s *Store) read(items []item, take func(it item, record []byte)) (all reading) {
	all.bytes, items = s.readMapped(items, take)
	buffer, _ := s.buffers.Get().(*[]byte)
	if buffer == nil {
		buffer = new([]byte)
	}
	defer s.buffers.Put(buffer)
	for len(items) > 0 {
		n, first := 1, items[0].at
		for n < len(items) && (items[n].at-items[n-1].at-1)*s.record <= gapBytes && (items[n].at+1-first)*s.record <= runBytes {
			n++
		}
		size := (items[n-1].at + 1 - first) * s.record
		if cap(*buffer) < size {
			*buffer = make([]byte, max(size, runBytes))
		}
		b := (*buffer)[:size]
		err := s.readRecords(b, first, items[n-1].row)
		all.bytes += size
		for _, it := range items[:n] {
			record := b[(it.at-first)*s.record:][:s.record]
			its := err
			if its != nil && n > 1 { // another of them may be at fault
				its = s.readRecords(record, it.at, it.row)
			}
			if its == nil {
				its = s.check(record, it.row)
			}
			if its != nil {
				all.add(reading{failed: []item{it}, err: its})
				continue
			}
			take(it, record)
		}
		items = items[n:]
	}
	return all
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
		*s.word(it.slot) &^= flying
	}
	for _, it := range f.failed {
		s.empty(it.slot)
	}
	s.stats.BytesRead += f.bytes
	return f.err
}
