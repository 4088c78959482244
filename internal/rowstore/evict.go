package rowstore

import (
	"cmp"
	"slices"
)

// A batch is rows that lost their slots and are to be written. Until they are, they are found here.
type batch struct {
	rows []int
	data []byte // a record of each
	done chan struct{}
	err  error
	size int // bytes written
}

// evict puts the row of a slot into the batch of this call.
func (s *Store) evict(slot int) {
	if s.out == nil {
		s.out = &batch{data: s.room()}
	}
	row := int(s.tags[slot]) - 1
	s.out.rows = append(s.out.rows, row)
	at := len(s.out.data)
	s.out.data = slices.Grow(s.out.data, s.record)[:at+s.record]
	record := s.out.data[at:]
	for _, f := range s.fields {
		copy(record[f.at:f.at+f.width], f.memory[slot*f.width:])
	}
	seal(record, row)
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

// pending returns the record of a row that is to be written, nil if there is none.
func (s *Store) pending(row int) []byte {
	for _, b := range slices.Backward(s.batches) {
		if i, ok := slices.BinarySearch(b.rows, row); ok {
			return b.data[i*s.record : (i+1)*s.record]
		}
	}
	return nil
}

// write begins to write the batch of this call, after those before. It waits for a batch that is
// being written, so that there are two at most.
func (s *Store) write() error {
	b := s.out
	if s.out = nil; b == nil {
		return nil
	}
	s.sort(b)
	s.batches = append(s.batches, b)
	if len(s.batches) > 1 {
		if err := s.finish(); err != nil {
			return err
		}
	}
	s.startWrite(b)
	return nil
}

// startWrite writes a batch in the background.
func (s *Store) startWrite(b *batch) {
	b.done, b.err = make(chan struct{}), nil
	go func() {
		defer close(b.done)
		b.err = s.put(b)
	}()
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
			s.startWrite(b)
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
	s.stats.BytesWritten += b.size
	s.batches, s.spare = s.batches[1:], append(s.spare, b.data[:0])
	return nil
}

// put writes the rows of a batch, neighbours at once.
func (s *Store) put(b *batch) error {
	b.size = 0
	for i := 0; i < len(b.rows); {
		n := 1
		for i+n < len(b.rows) && b.rows[i+n] == b.rows[i]+n && (n+1)*s.record <= runBytes {
			n++
		}
		records := b.data[i*s.record : (i+n)*s.record]
		if err := s.writeRecords(records, b.rows[i]); err != nil {
			return err
		}
		b.size += len(records)
		i += n
	}
	return nil
}

// sort sorts a batch by row.
func (s *Store) sort(b *batch) {
	if slices.IsSorted(b.rows) {
		return
	}
	order := make([]int32, len(b.rows))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(i, j int32) int { return cmp.Compare(b.rows[i], b.rows[j]) })
	rows, data := make([]int, 0, len(b.rows)), slices.Grow(s.room(), len(b.data))
	for _, i := range order {
		rows = append(rows, b.rows[i])
		data = append(data, b.data[int(i)*s.record:int(i+1)*s.record]...)
	}
	s.spare = append(s.spare, b.data[:0])
	b.rows, b.data = rows, data
}
