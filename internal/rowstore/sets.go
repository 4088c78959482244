package rowstore

import (
	"math"
	"math/bits"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/simd"
)

// setsOf returns the two sets that a row may be in.
func (s *Store) setsOf(row int) (a, b int) {
	h := uint64(row+1) * 0x9e3779b97f4a7c15 // the finalizer of MurmurHash3, after the golden ratio
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	first, _ := bits.Mul64(h, uint64(s.sets))
	second, _ := bits.Mul64(h<<32, uint64(s.sets))
	return int(first), int(second)
}

// look brings what find reads for rows into the processor's cache.
func (s *Store) look(rows []int64) {
	for _, row := range rows {
		a, b := s.setsOf(int(row))
		simd.Prefetch(unsafe.Pointer(&s.tags[a*Ways]), 1)
		simd.Prefetch(unsafe.Pointer(&s.tags[b*Ways]), 1)
	}
}

// approachGuesses brings what search reads for rows into the processor's cache: it looks first where they may be.
func (s *Store) approachGuesses(rows, slots []int64) {
	for i, slot := range slots[:len(rows)] {
		if slot < 0 {
			s.look(rows[i : i+1])
			continue
		}
		simd.Prefetch(unsafe.Pointer(&s.tags[slot]), 1)
		simd.Prefetch(unsafe.Pointer(&s.stamps[slot]), 1)
	}
}

// approach brings what place and start read for a row into the processor's cache.
func (s *Store) approach(row int) {
	a, b := s.setsOf(row)
	for _, at := range [2]int{a * Ways, b * Ways} {
		simd.Prefetch(unsafe.Pointer(&s.stamps[at]), 1)
		simd.Prefetch(unsafe.Pointer(&s.uses[at]), 1)
		simd.Prefetch(unsafe.Pointer(&s.flags[at]), 1)
	}
	simd.Prefetch(unsafe.Pointer(&s.log.where[row]), 1)
}

// find returns the slot of a row; ok is false if it has none.
func (s *Store) find(row int) (slot int, ok bool) {
	tag := uint32(row) + 1
	a, b := s.setsOf(row)
	for i, t := range (*[Ways]uint32)(s.tags[a*Ways:]) {
		if t == tag {
			return a*Ways + i, true
		}
	}
	for i, t := range (*[Ways]uint32)(s.tags[b*Ways:]) {
		if t == tag {
			return b*Ways + i, true
		}
	}
	return 0, false
}

// place gives a slot to a row that has none; ok is false if all that it may have are of rows that
// this call wants or that are being read.
func (s *Store) place(row int) (slot int, ok bool) {
	a, b := s.setsOf(row)
	if slot, ok = s.least(a, b); !ok {
		return 0, false
	}
	s.age(slot / Ways)
	if s.flags[slot]&dirty != 0 {
		s.leave(slot)
	}
	s.tags[slot], s.stamps[slot], s.uses[slot], s.flags[slot] = uint32(row)+1, s.call, 1, 0
	return slot, true
}

// least returns the slot of some sets to take first; ok is false if this call needs all, or they
// are being read.
func (s *Store) least(sets ...int) (slot int, ok bool) {
	const inSet = 4                 // bits of a slot's place in its set
	least := uint64(math.MaxUint64) // what it is worth, then its place: so a minimum needs no branch
	for k, set := range sets {
		first := set * Ways
		tags, stamps := (*[Ways]uint32)(s.tags[first:]), (*[Ways]uint32)(s.stamps[first:])
		uses, flags := (*[Ways]uint8)(s.uses[first:]), (*[Ways]uint8)(s.flags[first:])
		for i := range Ways {
			if stamps[i] == s.call && tags[i] != 0 || flags[i]&flying != 0 {
				continue
			}
			least = min(least, (s.worth(tags[i], stamps[i], uses[i], flags[i])<<1|uint64(k))<<inSet|uint64(i))
		}
	}
	if least == math.MaxUint64 {
		return 0, false
	}
	return sets[least>>inSet&1]*Ways + int(least&(Ways-1)), true
}

// move moves a row that this call wants from a set of another row to the other one that it may be
// in; ok is false if there is no such. So a call may want nearly as many rows as there are slots.
func (s *Store) move(other int) (ok bool) {
	a, b := s.setsOf(other)
	for _, set := range [2]int{a, b} {
		for from := set * Ways; from < (set+1)*Ways; from++ {
			if s.flags[from]&flying != 0 {
				continue
			}
			c, d := s.setsOf(int(s.tags[from]) - 1)
			if c == d || c+d-set == a || c+d-set == b {
				continue
			}
			to, ok := s.least(c + d - set)
			if !ok {
				continue
			}
			if s.flags[to]&dirty != 0 {
				s.leave(to)
				s.evict()
			}
			for _, f := range s.fields {
				copy(f.memory[to*f.width:(to+1)*f.width], f.memory[from*f.width:])
			}
			s.tags[to], s.stamps[to], s.uses[to], s.flags[to] = s.tags[from], s.stamps[from], s.uses[from], s.flags[from]
			s.tags[from], s.flags[from] = 0, 0
			return true
		}
	}
	return false
}

// worth says which slot to take first: the least.
func (s *Store) worth(tag, stamp uint32, uses, flags uint8) uint64 {
	if tag == 0 {
		return 0
	}
	w := uint64(uses)<<32 | uint64(stamp)
	if stamp >= s.since || stamp >= s.before && flags&ahead != 0 {
		w |= 1 << 40 // this step or the next one needs it
	}
	return w
}

// age halves the uses of a set after eight times as many misses as it has slots: of rows that are used seldom it takes long to
// see which are used more, and what was used often once need not be so for ever.
func (s *Store) age(set int) {
	if s.misses[set]++; s.misses[set] == 8*Ways {
		s.misses[set] = 0
		for at := set * Ways; at < (set+1)*Ways; at++ {
			s.uses[at] /= 2
		}
	}
}
