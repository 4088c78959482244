package rowstore

import (
	"math/bits"
	"slices"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/simd"
)

// A batch is records that are to be written. Until they are, rows are found here.
type batch struct {
	rows  []int
	data  []byte   // a record of each
	table []uint32 // where hash says, or at the next places: the index in rows of the newest record of a row plus one; 0: no more
	runs  []run    // where they are written
	done  chan struct{}
	err   error
}

// leaving is a row that has lost its slot.
type leaving struct{ row, slot int }

// leave notes that the row of a slot loses it, and brings its memory into the processor's cache. Before that
// memory changes, evict is called.
func (s *Store) leave(slot int) {
	for _, f := range s.fields {
		simd.PrefetchRow(f.memory, slot, f.width)
	}
	if s.leaving = append(s.leaving, leaving{int(*s.tag(slot)) - 1, slot}); len(s.leaving) == block {
		s.evict()
	}
}

// evict puts the rows that have lost their slots into the batch of this call.
func (s *Store) evict() {
	for _, it := range s.leaving {
		record := s.append(it.row, nil)
		for _, f := range s.fields {
			copy(record[f.at:f.at+f.width], f.memory[it.slot*f.width:])
		}
		seal(record, it.row)
	}
	s.leaving = s.leaving[:0]
}

// append appends a record to the batch of this call, and returns its memory.
func (s *Store) append(row int, record []byte) []byte {
	if s.out == nil {
		s.out = s.batch()
	}
	at := len(s.out.data)
	s.out.rows = append(s.out.rows, row)
	s.out.data = slices.Grow(s.out.data, s.record)[:at+s.record]
	copy(s.out.data[at:], record)
	return s.out.data[at:]
}

// batch returns an empty batch, with the memory of one that has been written if there is one.
func (s *Store) batch() *batch {
	n := len(s.written)
	if n == 0 {
		return &batch{data: s.room()}
	}
	b := s.written[n-1]
	s.written = s.written[:n-1]
	return &batch{rows: b.rows[:0], table: b.table, data: s.room()}
}

// room returns the memory of a batch before, for the records of another, or nil.
func (s *Store) room() []byte {
	n := len(s.spare)
	if n == 0 {
		return nil
	}
	data := s.spare[n-1]
	s.spare = s.spare[:n-1]
	return data
}

// pending returns the newest record of a row that is to be written, nil if there is none.
func (s *Store) pending(row int) []byte {
	for _, b := range slices.Backward(s.batches) {
		if i := b.table[b.place(row)]; i > 0 {
			return b.data[int(i-1)*s.record : int(i)*s.record]
		}
	}
	return nil
}

// list makes the table of a batch.
func (b *batch) list() {
	n := 2 << bits.Len(uint(len(b.rows)))
	b.table = slices.Grow(b.table[:0], n)[:n]
	clear(b.table)
	for i, row := range b.rows { // a later record of a row takes the place of an earlier one
		b.table[b.place(row)] = uint32(i) + 1
	}
}

// place returns the place of a row in the table; of a row that the batch does not have, the place that it would get.
func (b *batch) place(row int) int {
	mask := len(b.table) - 1
	at := int(uint64(row)*0x9e3779b97f4a7c15>>32) & mask
	for b.table[at] > 0 && b.rows[b.table[at]-1] != row {
		at = (at + 1) & mask
	}
	return at
}

// write begins to write the batch of this call, after those before. It waits for a batch that is
// being written, so that there are two at most.
func (s *Store) write() error {
	s.evict()
	b := s.out
	if s.out = nil; b == nil {
		return nil
	}
	b.list()
	s.batches = append(s.batches, b)
	if len(s.batches) > 1 {
		if err := s.finish(); err != nil {
			return err
		}
	}
	if err := s.startWrite(b); err != nil {
		return err
	}
	s.clean(len(b.runs))
	return nil
}

// startWrite writes a batch in the background.
func (s *Store) startWrite(b *batch) (err error) {
	if b.runs == nil {
		if b.runs, err = s.log.give(len(b.rows), len(s.flights) > 0 || s.cleaning != nil); err != nil {
			return s.wrap(-1, err)
		}
	}
	b.done, b.err = make(chan struct{}), nil
	go func() {
		defer close(b.done)
		b.err = s.put(b)
	}()
	return nil
}

// retry takes over what has been written, and tries again what could not be. It does not wait for
// a batch that is being written, if it is the only one.
func (s *Store) retry() error {
	for len(s.batches) > 0 {
		if b := s.batches[0]; b.done != nil && len(s.batches) == 1 {
			select {
			case <-b.done:
			default:
				return nil
			}
		}
		if err := s.finish(); err != nil {
			return err
		}
	}
	return nil
}

// drain waits until all is written.
func (s *Store) drain() error {
	for len(s.batches) > 0 {
		if err := s.finish(); err != nil {
			return err
		}
	}
	return nil
}

// finish waits until the first batch is written, if need be at the second attempt.
func (s *Store) finish() error {
	b := s.batches[0]
	for attempt := range 2 {
		if b.done == nil {
			if err := s.startWrite(b); err != nil {
				return err
			}
		}
		if err := s.await(b.done, b.rows[0], "writing"); err != nil {
			return err
		}
		if b.err == nil {
			break
		}
		if b.done = nil; attempt == 1 {
			return b.err
		}
	}
	rows := b.rows
	for _, r := range b.runs {
		for i := range r.n {
			if i+block < r.n {
				simd.Prefetch(unsafe.Pointer(&s.log.where[rows[i+block]]), 1)
			}
			s.log.set(rows[i], r.at+i)
		}
		rows = rows[r.n:]
	}
	s.stats.BytesWritten += len(b.data)
	s.batches, s.written, s.spare = slices.Delete(s.batches, 0, 1), append(s.written, b), append(s.spare, b.data[:0])
	return nil
}

// put writes the records of a batch.
func (s *Store) put(b *batch) error {
	rows, data := b.rows, b.data
	for _, r := range b.runs {
		if err := s.writeRecords(data[:r.n*s.record], r.at, rows); err != nil {
			return err
		}
		rows, data = rows[r.n:], data[r.n*s.record:]
	}
	return nil
}
