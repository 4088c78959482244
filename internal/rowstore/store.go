// Package rowstore keeps the rows of a table in a file, and those that are used most in
// memory. It knows nothing of tensors or ranks: a row is the bytes of one or more fields, such
// as its numbers and what an optimizer remembers of it.
//
// The memory is that of the caller: a list of slots for each field. Hold brings rows into slots,
// where the caller reads and changes them, Prefetch does so in the background. A row is in one of
// two sets of 16 slots, which a hash of its number names. The row that goes when the first is full is
// the least used one of it, and of equals the one that was wanted last the longest ago; if this step or the
// next one needs all of them, it is the least used one of both.
//
// The file is scratch: it has no name once it is made, and is gone when the process ends, however
// that happens. A row that was never changed is not in it; its first bytes are computed. Rows that lose their slots
// are appended to the file: see log. On Linux, records that lie close to each other are read in a mapping of the file, if the system
// has them in its cache: see mapping.
package rowstore

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// Ways is how many slots a set has. The number of slots is a multiple of it.
const Ways = 16

// MaxRows is how many rows a store has, at most: their records and the dead ones are counted in 32 bits.
const MaxRows = 1 << 31

// A Config describes a Store.
type Config struct {
	Table  string            // in errors
	Folder string            // where the file is
	Number func(row int) int // what errors call a row
	Rows   int               // at most MaxRows
	Slots  int               // a positive multiple of Ways
	// Fresh sets data, the first field of a row, to what it is before any change. It is called from
	// several goroutines.
	Fresh func(row int, data []byte)
	// Patience is how long a call waits for the disk before it is an error; 0: two minutes.
	Patience time.Duration
	Files    Files // nil: the operating system's
}

// A field is what the slots hold of rows.
type field struct {
	memory []byte // [Slots, width]
	width  int
	at     int                      // in a record
	begin  func(first, data []byte) // see AddField
}

// Store is the rows of one table. One goroutine uses it.
type Store struct {
	c        Config
	file     File
	mapped   *mapping // the file as memory; nil: it is not mapped
	path     string
	fields   []field
	record   int // bytes of a row in the file
	sets     []set
	states   []setState
	log      *log   // where the file has rows; nil before the first use
	call     uint32 // the number of this call
	since    uint32 // the call after the last Change: what was wanted since is kept if possible
	before   uint32 // the call after the Change before
	flights  []*flight
	landed   []*flight // those that have ended, whose memory is used again
	out      *batch    // rows that lost their slots in this call
	leaving  []leaving // rows that lost their slots since, and are still in their memory
	scratch  sync.Pool // of *scratch
	batches  []*batch  // rows to write, oldest first, of which the first is being written
	written  []*batch  // those that have been written, whose memory is used again
	spare    [][]byte  // their data, and that of cleanings
	cleaning *cleaning // nil: no segment is being read
	missing  []int     // memory for search and Prefetch
	stats    Stats
}

// Stats count what a Store has done.
type Stats struct {
	Wanted       int // rows that were used, each as often as a call of Hold for use names it
	Hits         int // those that were in memory already
	Ahead        int // those of them that a prefetch had brought
	Prefetched   int // rows that prefetches have brought
	BytesRead    int
	BytesWritten int
}

// An Error says what is wrong with a file, and with which row.
type Error struct {
	Table string
	Row   int // -1: no one row
	File  string
	Err   error
}

func (e *Error) Error() string {
	if e.Row < 0 {
		return fmt.Sprintf("table %q in %s: %v", e.Table, e.File, e.Err)
	}
	return fmt.Sprintf("table %q, row %d in %s: %v", e.Table, e.Row, e.File, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// ErrFull says that a call wants more rows in memory than there is room for.
var ErrFull = errors.New("more rows than slots")

// New returns a store of rows that were never changed. Add its fields, then use it.
func New(c Config) (*Store, error) {
	if c.Slots < Ways || c.Slots%Ways != 0 || c.Rows < 0 || c.Rows > MaxRows {
		panic(fmt.Sprintf("rowstore: %d rows in %d slots", c.Rows, c.Slots)) // the caller has checked them
	}
	if c.Patience == 0 {
		c.Patience = 2 * time.Minute
	}
	if c.Files == nil {
		c.Files = osFiles{}
	}
	s := &Store{c: c, sets: make([]set, c.Slots/Ways), states: make([]setState, c.Slots/Ways), record: endBytes}
	var err error
	if s.file, s.path, err = c.Files.Create(c.Folder); err != nil {
		return nil, &Error{Table: c.Table, Row: -1, File: c.Folder, Err: err}
	}
	return s, nil
}

// AddField adds a field of width bytes, which memory has for each slot. The first is the one
// that Config.Fresh sets; any other is set by begin, given the first, or is zeros before any change
// if begin is nil. AddField panics after the first use of the store.
func (s *Store) AddField(memory []byte, width int, begin func(first, data []byte)) {
	if s.call > 0 || len(memory) != s.c.Slots*width {
		panic(fmt.Sprintf("rowstore: a field of %d bytes in %d for %d slots, at call %d", width, len(memory), s.c.Slots, s.call))
	}
	at := s.record - endBytes
	s.fields = append(s.fields, field{memory: memory, width: width, at: at, begin: begin})
	s.record += width
}

// Used reports whether rows have been used, so that no field can be added.
func (s *Store) Used() bool { return s.call > 0 }

// Stats returns what has been done so far.
func (s *Store) Stats() Stats { return s.stats }

// Close gives the file back.
func (s *Store) Close() error {
	for _, f := range s.flights {
		<-f.done
	}
	if s.cleaning != nil {
		<-s.cleaning.done
	}
	for _, b := range s.batches {
		if b.done != nil {
			<-b.done
		}
	}
	if s.mapped != nil {
		s.mapped.close()
	}
	return s.file.Close()
}

// begin begins a call.
func (s *Store) begin() {
	if s.call == lastCall {
		s.countAnew()
	}
	if s.log == nil {
		s.log = newLog(s.c.Rows, s.record)
		s.mapFile()
	}
	s.call++
}

const (
	block = 32 // for how many rows the search begins at a time
	early = 8  // how many records before one is read it is brought into the processor's cache
)

// Hold brings rows, counted from 0, into slots and sets slots[i] to that of rows[i]. They stay there
// until the next call of Hold. use says that they are looked up, not found again to be changed. Before the call slots[i]
// is where rows[i] may be, as Prefetch or Hold has said it, so that it is not searched for; -1 if that is not known. A
// row that is elsewhere by now is searched for.
//
// If there is not room for all it returns ErrFull; any other error is an *Error. The rows that
// are in memory then are sound, and the next call works.
func (s *Store) Hold(rows, slots []int64, use bool) error {
	s.begin()
	missing, err := s.search(rows, slots, use)
	if err == nil && len(missing) > 0 {
		err = s.retry()
	}
	if err != nil {
		return err
	}
	s.relocate()
	flight := s.flight()
	full, moved := false, false
	ascending := isAscending(rows)
	for _, i := range missing {
		row, slot, ok := int(rows[i]), 0, false
		if !ascending { // it may occur twice
			slot, ok = s.find(row)
		}
		if !ok {
			slot, ok = s.place(row)
			if !ok && len(s.flights) > 0 { // what is being read may take its place
				if err := s.land(); err != nil {
					return s.forget(flight.items, err)
				}
				slot, ok = s.place(row)
			}
			if !ok {
				s.evict() // before move copies into slots
				if s.move(row) {
					moved = true
					slot, ok = s.place(row)
				}
			}
			if !ok {
				full = true
				continue
			}
			flight.items = append(flight.items, item{row: row, slot: slot})
		}
		slots[i] = int64(slot)
	}
	if moved {
		for i, row := range rows {
			if slot, ok := s.find(int(row)); ok {
				slots[i] = int64(slot)
			}
		}
		for i, it := range flight.items {
			flight.items[i].slot, _ = s.find(it.row)
		}
	}
	err = s.write()
	if failed := s.load(flight); err == nil { // while others are written
		err = failed
	}
	if err == nil && full {
		err = ErrFull
	}
	return err
}

// isAscending reports whether each row is after the one before, so that none occurs twice.
func isAscending(rows []int64) bool {
	for i := 1; i < len(rows); i++ {
		if rows[i] <= rows[i-1] {
			return false
		}
	}
	return true
}

// forget takes their slots from items of which the reading did not begin, and returns err.
func (s *Store) forget(items []item, err error) error {
	for _, it := range items {
		if slot, ok := s.find(it.row); ok {
			s.empty(slot)
		}
	}
	_ = s.write() // what had these slots before; it is tried again
	return err
}

// search finds rows that have a slot, and returns which have none.
func (s *Store) search(rows, slots []int64, use bool) (missing []int, err error) {
	missing = s.missing[:0]
	for first := 0; first < len(rows); first += block {
		its := rows[first:min(first+block, len(rows))]
		s.look(its, slots[first:])
		for i, row := range its {
			slot, ok := int(slots[first+i]), true
			if slot < 0 || *s.tag(slot) != uint32(row)+1 {
				slot, ok = s.find(int(row))
			}
			if ok && *s.word(slot)&flying != 0 {
				if err := s.land(); err != nil {
					return nil, err
				}
				slot, ok = s.find(int(row)) // it is gone if it could not be read
			}
			if use {
				s.stats.Wanted++
			}
			if !ok {
				missing = append(missing, first+i)
				continue
			}
			slots[first+i] = int64(slot)
			s.want(slot)
			if use {
				s.used(slot)
			}
		}
	}
	s.missing = missing
	return missing, nil
}

// want notes that this call wants the row of a slot.
func (s *Store) want(slot int) {
	w := s.word(slot)
	*w = *w&^(lastCall*oneCall) | s.call*oneCall
}

// used notes that a row was in memory when it was used.
func (s *Store) used(slot int) {
	s.stats.Hits++
	w := s.word(slot)
	if *w&ahead != 0 {
		s.stats.Ahead++
		*w &^= ahead
	}
	if *w/oneUse < mostUses {
		*w += oneUse
	}
}

// Change notes that rows are changed in the slots where Hold has brought them, at the end of a step. It returns false if some of them
// are not there, as they may have lost their slots to a Prefetch or to another Hold: then none is to be changed before another Hold.
func (s *Store) Change(rows, slots []int64) bool {
	if !s.Touch(rows, slots) {
		return false
	}
	s.before, s.since = s.since, s.call+1
	return true
}

// Touch is Change within a step.
func (s *Store) Touch(rows, slots []int64) bool {
	for i, slot := range slots {
		w := s.word(int(slot))
		if *s.tag(int(slot)) != uint32(rows[i])+1 || *w&flying != 0 {
			return false
		}
		*w |= dirty
	}
	return true
}

// Prefetch begins to bring rows into slots, and sets slots[i] to where rows[i] will be, -1 if it leaves that to Hold: for
// want of room or because the disk fails.
func (s *Store) Prefetch(rows, slots []int64) {
	s.begin()
	for i := range slots {
		slots[i] = -1
	}
	if s.retry() != nil {
		return // Hold tries again, and says it
	}
	s.relocate()
	missing := s.missing[:0] // indices of rows
	for first := 0; first < len(rows); first += block {
		its := rows[first:min(first+block, len(rows))]
		s.look(its, slots[first:])
		for i, row := range its {
			if slot, ok := s.find(int(row)); ok {
				slots[first+i] = int64(slot)
				s.want(slot)
			} else {
				missing = append(missing, first+i)
			}
		}
	}
	s.missing = missing
	f, most := s.flight(), s.c.Slots/2 // the rows of this step need room too
	ascending := isAscending(rows)
	for _, i := range missing {
		if len(f.items) == most {
			break
		}
		row, slot, ok := int(rows[i]), 0, false
		if !ascending { // it may occur twice
			slot, ok = s.find(row)
		}
		if !ok {
			if slot, ok = s.place(row); !ok {
				continue
			}
			*s.word(slot) |= ahead
			f.items = append(f.items, item{row: row, slot: slot})
		}
		slots[i] = int64(slot)
	}
	s.stats.Prefetched += len(f.items)
	_ = s.write() // of a batch before, which retry has seen to: it cannot fail
	s.start(f)
	if runtime.GOMAXPROCS(0) == 1 {
		// What was begun would run when this goroutine waits, and find colder caches. What the disk keeps waiting does not keep this one.
		runtime.Gosched()
	}
}

// fill sets the fields of a slot from a record.
func (s *Store) fill(slot int, record []byte) {
	for _, f := range s.fields {
		copy(f.memory[slot*f.width:(slot+1)*f.width], record[f.at:])
	}
}

// fresh sets the fields of a slot to those of a row that was never changed.
func (s *Store) fresh(slot, row int) {
	first := s.fields[0].memory[slot*s.fields[0].width:][:s.fields[0].width]
	s.c.Fresh(row, first)
	for _, f := range s.fields[1:] {
		f.fresh(first, f.memory[slot*f.width:(slot+1)*f.width])
	}
}

// fresh sets data to what the field of a row is, of which first is the first field, before any change.
func (f *field) fresh(first, data []byte) {
	if f.begin != nil {
		f.begin(first, data)
	} else {
		clear(data)
	}
}

// freshRecord sets the fields of a record to those of a row that was never changed.
func (s *Store) freshRecord(record []byte, row int) {
	first := record[:s.fields[0].width]
	s.c.Fresh(row, first)
	for _, f := range s.fields[1:] {
		f.fresh(first, record[f.at:f.at+f.width])
	}
}

// wrap returns err as that of a row, or for row -1 of the file.
func (s *Store) wrap(row int, err error) error {
	if row >= 0 {
		row = s.c.Number(row)
	}
	return &Error{Table: s.c.Table, Row: row, File: s.path, Err: err}
}

// await waits for the disk.
func (s *Store) await(done <-chan struct{}, row int, doing string) error {
	select {
	case <-done:
		return nil
	default:
	}
	timer := time.NewTimer(s.c.Patience)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		return s.wrap(row, fmt.Errorf("%s it has taken %v so far; the disk does not answer, so try again or use another one", doing,
			s.c.Patience))
	}
}
