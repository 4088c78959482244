package keytable

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/gorun-spmd/gorun/internal/mem"
)

// A group is slices that grow together. Each is a hash table with linear probing: a key is in the line of places that its
// hash gives, or at the next place of its slice that was free. At most 3/4 of the places are used. They lie side by side:
// memory of some size has huge pages, in which a search waits less.
type group struct {
	slices []slice
	first  int      // the number of the first one
	places []place  // of all slices, as many of each as a power of two
	counts []uint32 // Entry.Count of each
	each   int      // places of a slice
	shift  uint     // of a hash, which leaves the slice and the place in it

	kept    bool // whether changes are noted
	changes []change
}

// A slice is which slots its keys have.
type slice struct {
	live int     // keys
	next int32   // the slots from here on were never used
	free []int32 // slots below next that no key has
}

// A place is the part of an Entry that a search reads, in a quarter of a cache line.
type place struct {
	hash   Hash
	number int32 // Slot + 1; 0: the place is free
	last   int32
}

// leastPlaces is the number of places of an empty slice.
const leastPlaces = 8

// linePlaces is the number of places in a cache line. Those behind a free one of a line are free.
const linePlaces = 4

// newGroup returns the empty slices first to first+n.
func newGroup(first, n int) group {
	g := group{slices: make([]slice, n), first: first}
	g.place(leastPlaces)
	return g
}

// place gives each slice so many places, a power of two.
func (g *group) place(each int) {
	places, counts := g.places, g.counts
	g.places, g.counts = mem.Huge[place](len(g.slices)*each), mem.Huge[uint32](len(g.slices)*each)
	g.each, g.shift = each, 57-uint(bits.Len(uint(each)))
	for i, p := range places {
		if p.number != 0 {
			at, _ := g.search(p.hash)
			g.places[at], g.counts[at] = p, counts[i]
		}
	}
}

// slice returns the slice that a key is in.
func (g *group) slice(h Hash) *slice { return &g.slices[h.Slice()-g.first] }

// start returns the index at which the search for a key begins: a line does.
func (g *group) start(h Hash) int {
	return (int(uint64(h)>>(g.shift&63)) - g.first*g.each) &^ (linePlaces - 1)
}

// next returns the index after i in its slice.
func (g *group) next(i int) int { return i&-g.each | (i+1)&(g.each-1) }

// search returns the index of a key, or that of the free place where it would be; ok is false then.
func (g *group) search(h Hash) (i int, ok bool) {
	for i = g.start(h); ; i = g.next(i) {
		switch p := &g.places[i]; {
		case p.number == 0:
			return i, false
		case p.hash == h:
			return i, true
		}
	}
}

// batch is how many keys are searched for at a time: the processor reads the lines of all of them at once.
const batch = 128

// locate sets at[i] to the index of the key with hashes[i], or to -1. They are at most a batch.
func (g *group) locate(at []int, hashes []Hash) {
	at = at[:len(hashes)]
	for i, h := range hashes {
		at[i] = g.start(h)
	}
	readAhead(g.places, at)
	var far [batch]uint8 // which of them may be in another line
	n := 0
	for i, h := range hashes { // without branches: none could be foreseen
		line := (*[linePlaces]place)(g.places[at[i]:])
		k := same(line[1].hash, h) | 2*same(line[2].hash, h) | 3*same(line[3].hash, h)
		missing, further := same(line[k&3].hash, h)&taken(line[k&3])^1, taken(line[3])|same(h, 0) // a free place has this hash too
		at[i] = (at[i] + k) | -(missing &^ further)
		far[n&(batch-1)] = uint8(i)
		n += missing & further
	}
	var lines [batch]int
	for k, i := range far[:n] {
		lines[k] = g.next(at[i] | (linePlaces - 1))
	}
	readAhead(g.places, lines[:n])
	for _, i := range far[:n] {
		var ok bool
		if at[i], ok = g.search(hashes[i]); !ok {
			at[i] = -1
		}
	}
}

// same returns 1 if two hashes are the same, else 0.
func same(a, b Hash) int {
	x := uint64(a ^ b)
	return int((x|-x)>>63 ^ 1)
}

// taken returns 1 if a key is at a place, else 0.
func taken(p place) int { return int(uint32(-p.number) >> 31) }

// readAhead reads the elements of a list at indices, but for those below 0. The processor waits for all of them at once,
// where who needs one after the other would wait for each.
//
//go:noinline
func readAhead[T any](list []T, at []int) (last T) {
	for _, i := range at {
		if i >= 0 {
			last = list[i]
		}
	}
	return last
}

// insert adds a key that is not there, and sets the slot that it has.
func (g *group) insert(e *Entry) {
	at, _ := g.search(e.Hash)
	g.insertAt(at, e)
}

// insertAt is insert for who has found the index of its place. It returns that of the place that the key has got: another one
// if the slices had to grow.
func (g *group) insertAt(at int, e *Entry) int {
	s := g.slice(e.Hash)
	if s.live >= g.each/4*3 {
		g.place(2 * g.each)
		at, _ = g.search(e.Hash)
	}
	e.Slot = s.slot()
	s.live++
	g.places[at], g.counts[at] = place{e.Hash, e.Slot + 1, e.Last}, e.Count
	g.note(added, *e)
	return at
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

// at returns the key at an index.
func (g *group) at(i int) Entry {
	p := g.places[i]
	return Entry{Hash: p.hash, Slot: p.number - 1, Last: p.last, Count: g.counts[i]}
}

// use counts n uses of the key at an index in a step.
func (g *group) use(i int, n int64, step int32) {
	p, count := &g.places[i], &g.counts[i]
	if g.kept {
		g.changes = append(g.changes, change{hash: p.hash, last: p.last, count: *count, what: used})
	}
	p.last, *count = step, add(*count, n)
}

// remove takes out a key. It moves up the keys behind it that would no longer be found (Knuth, The Art of Computer
// Programming, volume 3, algorithm 6.4R).
func (g *group) remove(h Hash) {
	hole, _ := g.search(h)
	e, s := g.at(hole), g.slice(h)
	g.note(removed, e)
	s.free = append(s.free, e.Slot)
	s.live--
	for i := g.next(hole); g.places[i].number != 0; i = g.next(i) {
		p := g.places[i]
		if from := g.start(p.hash); (i-from)&(g.each-1) >= (i-hole)&(g.each-1) {
			g.places[hole], g.counts[hole] = p, g.counts[i]
			hole = i
		}
	}
	g.places[hole] = place{}
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
func (g *group) note(what uint8, e Entry) {
	if g.kept {
		g.changes = append(g.changes, change{e.Hash, e.Slot, e.Last, e.Count, what})
	}
}

// begin notes changes from here on, so that undo takes them back; forget does so no more.
func (g *group) begin() { g.kept = true }

func (g *group) forget() { g.kept, g.changes = false, g.changes[:0] }

// undo takes back what has changed since begin, the last change first. Each key then has the slot that it had.
func (g *group) undo() {
	g.kept = false
	for _, c := range slices.Backward(g.changes) {
		switch c.what {
		case used:
			at, _ := g.search(c.hash)
			g.places[at].last, g.counts[at] = c.last, c.count
		case added:
			g.remove(c.hash)
		case removed: // its slot was the last one that was freed
			g.insert(&Entry{c.hash, c.slot, c.last, c.count})
		}
	}
	g.forget()
}

// collect returns the keys of slice i for which f of their last step is true, in no order.
func (g *group) collect(i int, f func(last int32) bool) (list []Entry) {
	for at := i * g.each; at < (i+1)*g.each; at++ {
		if p := &g.places[at]; p.number != 0 && f(p.last) {
			list = append(list, g.at(at))
		}
	}
	return list
}

// room evicts keys of slice i that the step does not use, so that fresh keys fit into limit, and returns the fresh keys
// that fit.
func (g *group) room(i, limit int, fresh []Entry, step int32) (kept []Entry, evicted int) {
	s := &g.slices[i]
	need := s.live + len(fresh) - limit
	if need <= 0 {
		return fresh, 0
	}
	old := g.collect(i, func(last int32) bool { return last != step })
	if n := max(need, limit/16); n < len(old) {
		partition(old, n, byRank)
		old = old[:n]
	}
	for _, e := range old {
		g.remove(e.Hash)
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
