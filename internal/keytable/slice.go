package keytable

import "cmp"

// A slice is a hash table with linear probing: a key is at the index that its hash gives,
// or at the next one that was free. At most 3/4 of the entries are used.
type slice struct {
	entries []Entry // as many as a power of two
	shift   uint    // 64 less the power
	live    int     // keys
	next    int32   // the slots from here on were never used
	free    []int32 // slots below next that no key has
}

// leastEntries is the number of entries of an empty slice.
const leastEntries = 8

// reset makes s an empty slice.
func (s *slice) reset() { *s = slice{entries: make([]Entry, leastEntries), shift: 61} }

// place returns the index at which the search for a key begins.
func (s *slice) place(h Hash) int { return int(uint64(h) << 8 >> s.shift) }

// find returns the entry of a key, nil if there is none.
func (s *slice) find(h Hash) *Entry {
	mask := len(s.entries) - 1
	for i := s.place(h); ; i = (i + 1) & mask {
		e := &s.entries[i&mask]
		if e.Hash == h && e.used {
			return e
		}
		if !e.used {
			return nil
		}
	}
}

// insert adds a key that is not there and returns the slot that it has.
func (s *slice) insert(e Entry) int32 {
	e.Slot, e.used = s.slot(), true
	if s.live >= len(s.entries)/4*3 {
		old := s.entries
		s.entries, s.shift = make([]Entry, 2*len(old)), s.shift-1
		for i := range old {
			if old[i].used {
				s.put(old[i])
			}
		}
	}
	s.put(e)
	s.live++
	return e.Slot
}

func (s *slice) put(e Entry) {
	mask := len(s.entries) - 1
	i := s.place(e.Hash)
	for s.entries[i].used {
		i = (i + 1) & mask
	}
	s.entries[i] = e
}

// remove takes out a key of the slice. It moves up the keys behind it that would no longer
// be found (Knuth, The Art of Computer Programming, volume 3, algorithm 6.4R).
func (s *slice) remove(h Hash) {
	mask := len(s.entries) - 1
	hole := s.place(h)
	for s.entries[hole].Hash != h || !s.entries[hole].used {
		hole = (hole + 1) & mask
	}
	s.free = append(s.free, s.entries[hole].Slot)
	s.live--
	for i := hole; ; {
		i = (i + 1) & mask
		e := &s.entries[i]
		if !e.used {
			break
		}
		if from := s.place(e.Hash); (i-from)&mask >= (i-hole)&mask {
			s.entries[hole] = *e
			hole = i
		}
	}
	s.entries[hole] = Entry{}
}

// slot returns a slot that no key has.
func (s *slice) slot() int32 {
	if n := len(s.free); n > 0 {
		slot := s.free[n-1]
		s.free = s.free[:n-1]
		return slot
	}
	s.next++
	return s.next - 1
}

// collect returns the keys for which f is true, in no order.
func (s *slice) collect(f func(e *Entry) bool) (list []Entry) {
	for i := range s.entries {
		if e := &s.entries[i]; e.used && f(e) {
			list = append(list, *e)
		}
	}
	return list
}

// room evicts keys that the step does not use, so that fresh keys fit into limit, and returns
// the fresh keys that fit.
func (s *slice) room(limit int, fresh []Entry, step int32) (kept []Entry, evicted int) {
	need := s.live + len(fresh) - limit
	if need <= 0 {
		return fresh, 0
	}
	old := s.collect(func(e *Entry) bool { return e.Last != step })
	if n := max(need, limit/16); n < len(old) {
		partition(old, n, byRank)
		old = old[:n]
	}
	for _, e := range old {
		s.remove(e.Hash)
	}
	if n := limit - s.live; n < len(fresh) {
		partition(fresh, len(fresh)-n, byRank)
		fresh = fresh[len(fresh)-n:]
	}
	return fresh, len(old)
}

// byRank orders keys for eviction: the first are evicted first.
func byRank(a, b Entry) int {
	if a.Count != b.Count {
		return cmp.Compare(a.Count, b.Count)
	}
	if a.Last != b.Last {
		return cmp.Compare(a.Last, b.Last)
	}
	return cmp.Compare(a.Hash.Key(), b.Hash.Key())
}

// partition brings the least n of a list to its front, in no order (Hoare, "Algorithm 65:
// Find", 1961).
func partition[T any](list []T, n int, order func(a, b T) int) {
	lo, hi := 0, len(list)-1
	for lo < hi {
		pivot, i, j := list[(lo+hi)/2], lo, hi
		for i <= j {
			for order(list[i], pivot) < 0 {
				i++
			}
			for order(pivot, list[j]) < 0 {
				j--
			}
			if i <= j {
				list[i], list[j] = list[j], list[i]
				i++
				j--
			}
		}
		switch {
		case n <= j:
			hi = j
		case n >= i:
			lo = i
		default:
			return
		}
	}
}
