// Package keytable assigns rows of a table of limited size to 64-bit keys, and decides which
// keys have a row.
//
// The whole table is divided into Slices slices; a Table has some of them. A hash of a key
// decides which slice it is in. All slices have the same number of rows, and each decides
// for itself. So the decisions do not depend on how the slices are divided over ranks, nor
// on the order of the keys in a call of Use.
package keytable

import (
	"cmp"
	"math"
	"slices"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// Slices is into how many parts the keys are divided.
const Slices = 256

// A Hash is Mix of a key, by which the table identifies it. Its first 8 bits are the slice.
type Hash uint64

// Mix returns the hash of a key. No other key has it.
func Mix(key int64) Hash { return Hash(ints.Mix(uint64(key))) }

// Key returns the key of a hash.
func (h Hash) Key() int64 {
	x := uint64(h)
	x = (x ^ x>>31 ^ x>>62) * 0x319642b2d24d8ec3 // the inverses of the steps of ints.Mix, last one first
	x = (x ^ x>>27 ^ x>>54) * 0x96de1b173f119089
	return int64(x ^ x>>30 ^ x>>60)
}

// Slice returns the slice that a key is in.
func (h Hash) Slice() int { return int(h >> 56) }

// An Entry is a key and its history.
type Entry struct {
	Hash  Hash
	Slot  int32  // its row of its slice
	Last  int32  // the last step in which it was used
	Count uint32 // how often it was used, at most 2³²-1
}

// A Policy says which keys have a row.
type Policy struct {
	Rows   int // of each slice
	Admit  int // how often a key is used before it has a row; 0 or 1: at once
	Expire int // for how many steps a key may be unused; 0: for ever
}

// Stats count what has happened to keys, each use of a key as often as it occurs.
type Stats struct {
	Uses     int64 // of keys in all calls of Use
	Hits     int64 // those of keys that had a row before the call
	Admitted int64 // keys that were given a row
	Evicted  int64 // keys that lost it because others needed room
	Expired  int64 // keys that lost it because they were not used
	Refused  int64 // times that a key was to have a row and there was none
}

// A Table is the slices first to first+len(rows).
type Table struct {
	Policy     Policy
	Stats      Stats
	first      int
	rows       group
	candidates group // keys that are counted and have no row, as many at most as there are rows
	before     Stats // at the last Begin
}

// New returns the slices first to first+n.
func New(first, n int, p Policy) *Table {
	return &Table{Policy: p, first: first, rows: newGroup(n), candidates: newGroup(n)}
}

// Len returns how many keys have a row.
func (t *Table) Len() int { return count(t.rows) }

// Candidates returns how many keys are counted and have no row.
func (t *Table) Candidates() int { return count(t.candidates) }

func count(list group) (n int) {
	for i := range list.slices {
		n += list.slices[i].live
	}
	return n
}

// Row returns the row of slot s of a slice, counted over all slices.
func (t *Table) Row(h Hash, slot int32) int { return h.Slice()*t.Policy.Rows + int(slot) }

// ahead is how many keys before its own turn the search for a key is prefetched.
const ahead = 32

// Find sets rows[i] to the row of the key with hashes[i], counted over all slices, or -1.
// The hashes are of this table's slices.
func (t *Table) Find(rows []int64, hashes []Hash) {
	for i, next := 0, 0; i < len(hashes); i++ {
		for ; next < min(i+ahead, len(hashes)); next++ { // once some keys, then one
			t.prefetch(hashes[next], false)
		}
		rows[i] = t.find(hashes[i])
	}
}

// find returns the row of a key, counted over all slices, or -1.
func (t *Table) find(h Hash) int64 {
	s := &t.rows.slices[h.Slice()-t.first]
	if i, ok := s.find(h); ok {
		return int64(t.Row(h, s.slotAt(i)))
	}
	return -1
}

// prefetch prefetches the places at which the search for a key begins, and with counts theirs too.
func (t *Table) prefetch(h Hash, counts bool) {
	s := &t.rows.slices[h.Slice()-t.first]
	at := s.start(h)
	simd.Prefetch(unsafe.Pointer(&s.places[at]), 1)
	if counts {
		simd.Prefetch(unsafe.Pointer(&s.counts[at]), 1)
	}
}

// A Use is a key and how often it is used: two numbers, so that a message of such pairs is a list of uses.
type Use struct {
	Hash  Hash
	Count int64
}

// Use counts the uses of keys in a step, and gives rows to the keys that the Policy admits. A
// key may occur several times. It sets rows[i] to the row of uses[i] as Find does; added are the keys that have got one.
//
// If a slice has too few rows, it evicts its lowest keys by count, last step and key, a
// sixteenth of the slice at a time, but never a key that this step uses. If that is not
// enough, the first of the new keys, by count and then by key, get the rows that there are.
func (t *Table) Use(rows []int64, uses []Use, step int32) (added []Entry) {
	missing := t.note(rows, uses, step)
	if len(missing) == 0 {
		return nil
	}
	added = make([]Entry, 0, len(missing))
	for i, fresh := range t.bySlice(uses, missing) {
		s := &t.rows.slices[i]
		switch {
		case len(fresh) == 0:
		case t.Policy.Admit <= 1 && s.live+len(fresh) <= t.Policy.Rows:
			added = t.rows.insertAll(i, fresh, step, added)
		default:
			slices.SortFunc(fresh, func(a, b Use) int { return cmp.Compare(a.Hash, b.Hash) })
			added = append(added, t.give(i, t.admit(i, merge(fresh), step), step)...)
		}
	}
	t.Stats.Admitted += int64(len(added))
	for _, i := range missing {
		rows[i] = t.find(uses[i].Hash)
	}
	return added
}

// note counts the uses of keys with a row and sets rows of them; missing are the numbers of the other uses.
func (t *Table) note(rows []int64, uses []Use, step int32) (missing []int32) {
	for i, next := 0, 0; i < len(uses); i++ {
		for ; next < min(i+ahead, len(uses)); next++ {
			t.prefetch(uses[next].Hash, true)
		}
		u := uses[i]
		t.Stats.Uses += u.Count
		s := &t.rows.slices[u.Hash.Slice()-t.first]
		if k, ok := s.find(u.Hash); ok {
			t.Stats.Hits += u.Count
			s.use(k, u.Count, step)
			rows[i] = int64(t.Row(u.Hash, s.slotAt(k)))
		} else {
			missing = append(missing, int32(i))
		}
	}
	return missing
}

// insertAll adds keys to slice i, which has room for all of them, and appends them to added.
func (g group) insertAll(i int, uses []Use, step int32, added []Entry) []Entry {
	for _, u := range uses {
		at, ok := g.slices[i].search(u.Hash)
		if ok { // it occurs again
			g.slices[i].use(at, u.Count, step)
			continue
		}
		e := Entry{Hash: u.Hash, Last: step, Count: add(0, u.Count)}
		e.Slot = g.insertAt(i, at, e)
		added = append(added, e)
	}
	return added
}

// bySlice divides the missing ones of uses into those of each slice.
func (t *Table) bySlice(uses []Use, missing []int32) [][]Use {
	lists, ends := make([][]Use, len(t.rows.slices)), make([]int, len(t.rows.slices)+1)
	for _, m := range missing {
		ends[uses[m].Hash.Slice()-t.first+1]++
	}
	all := make([]Use, len(missing))
	for i := range lists {
		ends[i+1] += ends[i]
		lists[i] = all[ends[i]:ends[i]:ends[i+1]]
	}
	for _, m := range missing {
		i := uses[m].Hash.Slice() - t.first
		lists[i] = append(lists[i], uses[m])
	}
	return lists
}

// merge joins consecutive uses of one key.
func merge(uses []Use) []Use {
	n := 0
	for i, u := range uses {
		if i > 0 && uses[n-1].Hash == u.Hash {
			uses[n-1].Count += u.Count
			continue
		}
		uses[n] = u
		n++
	}
	return uses[:n]
}

// admit returns those keys of slice i without a row that have been used often enough, and
// counts the others.
func (t *Table) admit(i int, uses []Use, step int32) (list []Entry) {
	c := &t.candidates.slices[i]
	list = make([]Entry, 0, len(uses))
	var fresh []Entry // candidates that were none
	for _, u := range uses {
		e := Entry{Hash: u.Hash, Count: add(0, u.Count), Last: step}
		at, counted := c.find(u.Hash)
		if counted {
			e.Count = add(c.counts[at], u.Count)
		}
		switch {
		case int64(e.Count) >= int64(t.Policy.Admit):
			if counted {
				c.remove(u.Hash)
			}
			list = append(list, e)
		case counted:
			c.use(at, u.Count, step)
		default:
			fresh = append(fresh, e)
		}
	}
	kept, _ := c.room(t.Policy.Rows, fresh, step)
	for _, e := range kept {
		t.candidates.insert(i, e)
	}
	return list
}

// give gives rows of slice i to the keys of list.
func (t *Table) give(i int, list []Entry, step int32) []Entry {
	kept, evicted := t.rows.slices[i].room(t.Policy.Rows, list, step)
	t.Stats.Evicted += int64(evicted)
	t.Stats.Refused += int64(len(list) - len(kept))
	for k := range kept {
		kept[k].Slot = t.rows.insert(i, kept[k])
	}
	return kept
}

// Begin notes what uses change from here on, until Undo or Forget.
func (t *Table) Begin() {
	t.before = t.Stats
	t.rows.begin()
	t.candidates.begin()
}

// Evicted reports whether keys have lost their rows to others since Begin.
func (t *Table) Evicted() bool { return t.Stats.Evicted > t.before.Evicted }

// Undo makes the table what it was at Begin: each key has the row and the history that it had.
func (t *Table) Undo() {
	t.rows.undo(t.first)
	t.candidates.undo(t.first)
	t.Stats = t.before
}

// Forget ends what Begin began, and lets the changes stand.
func (t *Table) Forget() {
	t.rows.forget()
	t.candidates.forget()
}

// Expire takes the rows of keys that have not been used for Policy.Expire steps or more.
func (t *Table) Expire(step int32) {
	t.Stats.Expired += int64(t.expire(t.rows, step))
	t.expire(t.candidates, step)
}

func (t *Table) expire(list group, step int32) (n int) {
	for i := range list.slices {
		old := list.slices[i].collect(func(last int32) bool { return int(step)-int(last) >= t.Policy.Expire })
		for _, e := range old {
			list.slices[i].remove(e.Hash)
		}
		n += len(old)
	}
	return n
}

// Entries returns the keys that have a row, or with candidates those that have none,
// ascending by hash.
func (t *Table) Entries(candidates bool) []Entry {
	list := t.rows
	if candidates {
		list = t.candidates
	}
	all := make([]Entry, 0, count(list))
	for i := range list.slices {
		its := list.slices[i].collect(func(int32) bool { return true })
		slices.SortFunc(its, func(a, b Entry) int { return cmp.Compare(a.Hash, b.Hash) })
		all = append(all, its...)
	}
	return all
}

// Put adds an entry of another table, whose key this table must not have, and returns its
// row; ok is false if its slice is full.
func (t *Table) Put(e Entry, candidate bool) (row int, ok bool) {
	i := e.Hash.Slice() - t.first
	g := t.rows
	if candidate {
		g = t.candidates
	}
	if g.slices[i].live == t.Policy.Rows {
		return 0, false
	}
	return t.Row(e.Hash, g.insert(i, e)), true
}

// Clear takes all keys out. The statistics go on.
func (t *Table) Clear() {
	t.rows, t.candidates = newGroup(len(t.rows.slices)), newGroup(len(t.candidates.slices))
}

// add returns a + n, at most 2³²-1.
func add(a uint32, n int64) uint32 { return uint32(min(int64(a)+n, math.MaxUint32)) }
