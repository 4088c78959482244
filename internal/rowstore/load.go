package rowstore

import (
	"slices"
	"sync"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// An item is a row and the slot that it is read into; at is the number of its record in the file.
type item struct{ row, slot, at int }

// A flight is rows that are being read in the background.
type flight struct {
	items       []item
	file, fresh []item // of items: the file has their rows, or they were never changed
	sorted      []item // memory for readAll
	done        chan struct{}
	reading
}

// A scratch is memory for reading records.
type scratch struct {
	records []byte
	pages   [askedPages]byte // see mapping
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

// flight returns a flight without items, with the memory of one that has ended if there is one.
func (s *Store) flight() *flight {
	n := len(s.landed)
	if n == 0 {
		return &flight{}
	}
	f := s.landed[n-1]
	s.landed = s.landed[:n-1]
	return &flight{items: f.items[:0], file: f.file[:0], fresh: f.fresh[:0], sorted: f.sorted}
}

// start begins to read the items of a flight, which have their slots.
func (s *Store) start(f *flight) {
	if len(f.items) == 0 {
		s.landed = append(s.landed, f)
		return
	}
	for k, it := range f.items {
		if k+block < len(f.items) {
			simd.Prefetch(unsafe.Pointer(&s.log.where[f.items[k+block].row]), 1)
		}
		if record := s.pending(it.row); record != nil {
			s.fill(it.slot, record)
			*s.word(it.slot) |= dirty
		} else if at, ok := s.log.find(it.row); ok {
			it.at = at
			f.file = append(f.file, it)
		} else {
			f.fresh = append(f.fresh, it)
		}
		*s.word(it.slot) |= flying
	}
	s.flights, f.done = append(s.flights, f), make(chan struct{})
	go func() {
		defer close(f.done)
		f.reading = s.readAll(f.file, &f.sorted, func(it item, record []byte) { s.fill(it.slot, record) }, func() {
			for _, it := range f.fresh {
				s.fresh(it.slot, it.row)
			}
		})
	}()
}

// readAll reads items, several at a time, and calls take for each, on several goroutines; meanwhile it calls also. It changes the
// order of items, for which it needs as much memory.
func (s *Store) readAll(items []item, memory *[]item, take func(it item, record []byte), also func()) (all reading) {
	var mu sync.Mutex // guards all
	var running sync.WaitGroup
	*memory = slices.Grow((*memory)[:0], len(items))[:len(items)]
	items = inOrder(items, *memory)
	n := max(fewItems, ints.DivUp(len(items), readers))
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

// inOrder sorts items by at, a digit after the other from the lowest on, and returns them; it changes items and other, which are as long.
func inOrder(items, other []item) []item {
	const digit = 11
	most := 0
	for _, it := range items {
		most = max(most, it.at)
	}
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
	m, _ := s.scratch.Get().(*scratch)
	if m == nil {
		m = new(scratch)
	}
	defer s.scratch.Put(m)
	all.bytes, items = s.readMapped(items, &m.pages, take)
	for len(items) > 0 {
		n, first := 1, items[0].at
		for n < len(items) && (items[n].at-items[n-1].at-1)*s.record <= gapBytes && (items[n].at+1-first)*s.record <= runBytes {
			n++
		}
		size := (items[n-1].at + 1 - first) * s.record
		if cap(m.records) < size {
			m.records = make([]byte, max(size, runBytes))
		}
		b := m.records[:size]
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

// load reads the items of a flight now.
func (s *Store) load(f *flight) error {
	if s.start(f); len(f.items) == 0 {
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
	s.landed = append(s.landed, f)
	return f.err
}
