package keytable

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/gorun-spmd/gorun/internal/mem"
)

// A group is slices that grow together. Their places lie side by side: memory of some size has huge pages, in which a
// search waits less.
type group struct {
	slices  []slice
	journal *journal // of all slices
}

// newGroup returns n empty slices.
func newGroup(n int) group {
	g := group{make([]slice, n), &journal{}}
	for i := range g.slices {
		g.slices[i].journal = g.journal
	}
	g.place(leastPlaces)
	return g
}

// place gives each slice so many places, a power of two.
func (g group) place(each int) {
	n := len(g.slices) * each
	places, counts := mem.Huge[place](n), mem.Huge[uint32](n)
	for i := range g.slices {
		s := &g.slices[i]
		old := *s
		s.places, s.counts, s.shift = places[i*each:][:each], counts[i*each:][:each], 65-uint(bits.Len(uint(each)))
		for j := range old.places {
			if old.places[j].number != 0 {
				e := old.at(j)
				at, _ := s.search(e.Hash)
				s.set(at, e)
			}
		}
	}
}

// insert adds a key that is not in slice i and returns the slot that it has.
func (g group) insert(i int, e Entry) int32 {
	at, _ := g.slices[i].search(e.Hash)
	return g.insertAt(i, at, e)
}

// insertAt is insert for who has found index at.
func (g group) insertAt(i, at int, e Entry) int32 {
	s := &g.slices[i]
	if s.live >= len(s.places)/4*3 {
		g.place(2 * len(s.places))
		at, _ = s.search(e.Hash)
	}
	e.Slot = s.slot()
	s.set(at, e)
	s.live++
	s.journal.note(added, e)
	return e.Slot
}

// begin notes changes from here on, so that undo takes them back; forget does so no more.
func (g group) begin() { g.journal.kept = true }

func (g group) forget() { *g.journal = journal{changes: g.journal.changes[:0]} }

// undo takes back what has changed since begin, the last change first. Each key then has the slot that it had. The first slice is
// that of the hashes which begin with first.
func (g group) undo(first int) {
	g.journal.kept = false
	for _, c := range slices.Backward(g.journal.changes) {
		i := c.hash.Slice() - first
		s := &g.slices[i]
		switch c.what {
		case used:
			at, _ := s.find(c.hash)
			s.places[at].last, s.counts[at] = c.last, c.count
		case added:
			s.remove(c.hash)
		case removed: // its slot was the last one that was freed
			g.insert(i, Entry{c.hash, c.slot, c.last, c.count})
		}
	}
	g.forget()
}

// A journal has what changes in the slices of a group, while it is kept.
type journal struct {
	kept    bool
	changes []change
}

// A change is what has happened to a key: it was used and was an Entry before, was added, or was removed.
type change struct {
	hash       Hash
	slot, last int32
	count      uint32
	what       uint8
}

const (
	used uint8 = iota
	added
	removed
)

// note notes a change.
func (j *journal) note(what uint8, e Entry) {
	if j.kept {
		j.changes = append(j.changes, change{e.Hash, e.Slot, e.Last, e.Count, what})
	}
}

// A slice is a hash table with linear probing: a key is in the line of places that its hash gives, or at the next place
// that was free. At most 3/4 of the places are used. What a search reads lies together.
type slice struct {
	places []place  // as many as a power of two
	counts []uint32 // Entry.Count of each
	shift  uint     // 64 less the power
	live   int      // keys
	next   int32    // the slots from here on were never used
	free   []int32  // slots below next that no key has

	journal *journal
}

// A place is the part of an Entry that a search reads, in a quarter of a cache line.
type place struct {
	hash   Hash
	number int32 // Slot + 1; 0: the place is free
	last   int32
}

// leastPlaces is the number of places of an empty slice.
const leastPlaces = 8

// linePlaces is the number of places in a cache line.
const linePlaces = 4

// start returns the index at which the search for a key begins: a line does.
func (s *slice) start(h Hash) int { return int(uint64(h)<<8>>(s.shift&63)) &^ (linePlaces - 1) }

// find is search for a key that is likely to be here, and near.
func (s *slice) find(h Hash) (i int, ok bool) {
	i = s.start(h)
	line := (*[linePlaces]place)(s.places[i:])
	at := same(line[1].hash, h) | 2*same(line[2].hash, h) | 3*same(line[3].hash, h) // without branches: none could be foreseen
	if p := &line[at]; p.hash == h && p.number != 0 {
		return i + at, true
	}
	return s.search(h)
}

// same returns 1 if two hashes are the same, else 0.
func same(a, b Hash) int {
	x := uint64(a ^ b)
	return int((x|-x)>>63 ^ 1)
}

// search returns the index of a key, or that of the free place where it would be; ok is false then.
func (s *slice) search(h Hash) (i int, ok bool) {
	mask := len(s.places) - 1
	for i = s.start(h); ; i++ {
		i &= mask
		switch p := &s.places[i]; {
		case p.number == 0:
			return i, false
		case p.hash == h:
			return i, true
		}
	}
}

// slotAt returns the slot of the key at index i.
func (s *slice) slotAt(i int) int32 { return s.places[i].number - 1 }

// at returns the key at index i.
func (s *slice) at(i int) Entry {
	return Entry{Hash: s.places[i].hash, Slot: s.slotAt(i), Last: s.places[i].last, Count: s.counts[i]}
}

// use counts n uses of the key at index i in a step.
func (s *slice) use(i int, n int64, step int32) {
	p, count := &s.places[i], &s.counts[i]
	if j := s.journal; j.kept {
		j.changes = append(j.changes, change{hash: p.hash, last: p.last, count: *count, what: used})
	}
	p.last, *count = step, add(*count, n)
}

// set puts a key at index i.
func (s *slice) set(i int, e Entry) {
	s.places[i], s.counts[i] = place{e.Hash, e.Slot + 1, e.Last}, e.Count
}

// remove takes out a key of the slice. It moves up the keys behind it that would no longer
// be found (Knuth, The Art of Computer Programming, volume 3, algorithm 6.4R).
func (s *slice) remove(h Hash) {
	mask := len(s.places) - 1
	hole, _ := s.find(h)
	s.journal.note(removed, s.at(hole))
	s.free = append(s.free, s.slotAt(hole))
	s.live--
	for i := hole; ; {
		i = (i + 1) & mask
		p := s.places[i]
		if p.number == 0 {
			break
		}
		if from := s.start(p.hash); (i-from)&mask >= (i-hole)&mask {
			s.places[hole], s.counts[hole] = p, s.counts[i]
			hole = i
		}
	}
	s.places[hole] = place{}
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

// collect returns the keys for which f of their last step is true, in no order.
func (s *slice) collect(f func(last int32) bool) (list []Entry) {
	for i := range s.places {
		if p := &s.places[i]; p.number != 0 && f(p.last) {
			list = append(list, s.at(i))
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
	old := s.collect(func(last int32) bool { return last != step })
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
