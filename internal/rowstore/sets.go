package rowstore

import (
	"math"
	"math/bits"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/simd"
)

// A set is Ways slots: what is known of them lies in two lines of a processor's cache.
type set struct {
	tags  [Ways]uint32 // by slot: its row plus one, 0: none
	words [Ways]uint32 // by slot, from the highest bits on: how often it was used, the call that wanted it last, flags; 0: it has no row
}

// The flags of a slot.
const (
	dirty  = 1 << iota // it differs from the file
	flying             // it is being read
	ahead              // it was prefetched and not used yet
	guest              // it is in the second set that its row may be in
	oneCall
	flags = oneCall - 1
)

const (
	oneUse   = 1 << 24 // uses are halved now and then
	mostUses = math.MaxUint32 / oneUse
	lastCall = oneUse/oneCall - 1 // then calls are counted anew
)

// A setState is what else is known of a set.
type setState struct {
	misses uint8 // since its uses were halved
	away   uint8 // how many rows have it as their first set and are in their second; math.MaxUint8: as many or more
}

func (s *Store) tag(slot int) *uint32 { return &s.sets[uint(slot)/Ways].tags[uint(slot)%Ways] }

func (s *Store) word(slot int) *uint32 { return &s.sets[uint(slot)/Ways].words[uint(slot)%Ways] }

// setsOf returns the two sets that a row may be in.
func (s *Store) setsOf(row int) (a, b int) {
	h := uint64(row+1) * 0x9e3779b97f4a7c15 // the finalizer of MurmurHash3, after the golden ratio
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	first, _ := bits.Mul64(h, uint64(len(s.sets)))
	second, _ := bits.Mul64(h<<32, uint64(len(s.sets)))
	return int(first), int(second)
}

// look brings what find and place read for rows into the processor's cache; slots[i] is where rows[i] may be, -1 if that is not known.
func (s *Store) look(rows, slots []int64) {
	for i, row := range rows {
		at := int(slots[i]) / Ways
		if slots[i] < 0 {
			at, _ = s.setsOf(int(row))
		}
		simd.Prefetch(unsafe.Pointer(&s.sets[at]), int(unsafe.Sizeof(set{})))
	}
}

// find returns the slot of a row; ok is false if it has none.
func (s *Store) find(row int) (slot int, ok bool) {
	tag := uint32(row) + 1
	a, b := s.setsOf(row)
	for i, t := range &s.sets[a].tags {
		if t == tag {
			return a*Ways + i, true
		}
	}
	if s.states[a].away > 0 {
		for i, t := range &s.sets[b].tags {
			if t == tag {
				return b*Ways + i, true
			}
		}
	}
	return 0, false
}

// place gives a slot to a row that has none; ok is false if all that it may have are of rows that
// this call wants or that are being read.
func (s *Store) place(row int) (slot int, ok bool) {
	a, b := s.setsOf(row)
	slot, worth := s.least(a)
	if worth >= needed {
		if other, its := s.least(b); its < worth {
			slot, worth = other, its
		}
	}
	if worth == math.MaxUint64 {
		return 0, false
	}
	s.age(slot / Ways)
	if *s.word(slot)&dirty != 0 {
		s.leave(slot)
	}
	s.empty(slot)
	s.occupy(slot, row, a, oneUse|s.call*oneCall)
	return slot, true
}

// occupy puts a row, whose first set is given, into a slot that has none.
func (s *Store) occupy(slot, row, first int, word uint32) {
	if first != slot/Ways {
		word |= guest
		if away := &s.states[first].away; *away < math.MaxUint8 {
			*away++
		}
	}
	*s.tag(slot), *s.word(slot) = uint32(row)+1, word
}

// empty takes its row from a slot, if it has one.
func (s *Store) empty(slot int) {
	if *s.word(slot)&guest != 0 {
		a, _ := s.setsOf(int(*s.tag(slot)) - 1)
		if away := &s.states[a].away; *away < math.MaxUint8 {
			*away--
		}
	}
	*s.tag(slot), *s.word(slot) = 0, 0
}

// needed is added to what a slot is worth whose row is needed in this step or the next one.
const needed = 1 << 32

// least returns the slot of a set to take first and what it is worth; math.MaxUint64 if this call needs all, or they are being read.
func (s *Store) least(at int) (slot int, worth uint64) {
	words := &s.sets[at].words
	least := uint32(math.MaxUint32)
	for i, w := range words {
		least = min(least, w&^flags|uint32(i)) // a minimum needs no branch
	}
	if worth = s.worth(words[least%Ways]); worth >= needed { // else it is the least of those that are not needed
		worth, least = math.MaxUint64, 0
		for i, w := range words {
			if its := s.worth(w); its < worth {
				worth, least = its, uint32(i)
			}
		}
	}
	return at*Ways + int(least%Ways), worth
}

// worth returns what a slot with that word is worth.
func (s *Store) worth(word uint32) uint64 {
	call, since := word%oneUse/oneCall, s.since
	if since == 0 {
		since = lastCall + 1 // no step has ended: none is kept for this one
	}
	switch {
	case call == s.call || word&flying != 0:
		return math.MaxUint64
	case call >= since || word&ahead != 0 && call >= s.before:
		return needed | uint64(word&^flags)
	}
	return uint64(word &^ flags)
}

// move moves a row that this call wants from a set of another row to the other one that it may be
// in; ok is false if there is no such. So a call may want nearly as many rows as there are slots.
func (s *Store) move(other int) (ok bool) {
	a, b := s.setsOf(other)
	for _, at := range [2]int{a, b} {
		for from := at * Ways; from < (at+1)*Ways; from++ {
			if *s.word(from)&flying != 0 {
				continue
			}
			row := int(*s.tag(from)) - 1
			c, d := s.setsOf(row)
			if c == d || c+d-at == a || c+d-at == b {
				continue
			}
			to, worth := s.least(c + d - at)
			if worth == math.MaxUint64 {
				continue
			}
			if *s.word(to)&dirty != 0 {
				s.leave(to)
				s.evict()
			}
			for _, f := range s.fields {
				copy(f.memory[to*f.width:(to+1)*f.width], f.memory[from*f.width:])
			}
			word := *s.word(from) &^ guest
			s.empty(from)
			s.empty(to)
			s.occupy(to, row, c, word)
			return true
		}
	}
	return false
}

// age halves the uses of a set after eight times as many misses as it has slots: of rows that are used seldom it takes long to
// see which are used more, and what was used often once need not be so for ever.
func (s *Store) age(at int) {
	if s.states[at].misses++; s.states[at].misses == 8*Ways {
		s.states[at].misses = 0
		for i, w := range &s.sets[at].words {
			s.sets[at].words[i] = w/oneUse/2*oneUse | w%oneUse
		}
	}
}

// countAnew forgets which calls wanted the rows, so that calls can be counted from 1 again.
func (s *Store) countAnew() {
	for i := range s.sets {
		for j := range s.sets[i].words {
			s.sets[i].words[j] &^= lastCall * oneCall
		}
	}
	s.call, s.since, s.before = 0, 0, 0
}
