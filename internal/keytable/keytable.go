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

	"github.com/gorun-spmd/gorun/internal/ints"
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
	rows       group
	candidates group // keys that are counted and have no row, as many at most as there are rows
	before     Stats // at the last Begin
}

// New returns the slices first to first+n.
func New(first, n int, p Policy) *Table {
	return &Table{Policy: p, rows: newGroup(first, n), candidates: newGroup(first, n)}
}

// Len returns how many keys have a row.
func (t *Table) Len() int { return t.rows.count() }

// Candidates returns how many keys are counted and have no row.
func (t *Table) Candidates() int { return t.candidates.count() }

func (g *group) count() (n int) {
	for i := range g.slices {
		n += g.slices[i].live
	}
	return n
}

// Row returns the row of slot s of a slice, counted over all slices.
func (t *Table) Row(h Hash, slot int32) int { return h.Slice()*t.Policy.Rows + int(slot) }

// Find sets rows[i] to the row of the key with hashes[i], counted over all slices, or -1.
// The hashes are of this table's slices.
func (t *Table) Find(rows []int64, hashes []Hash) {
	var places [batch]int
	for len(hashes) > 0 {
		its := hashes[:min(batch, len(hashes))]
		at := places[:len(its)]
		t.rows.locate(at, its)
		for i, h := range its {
			rows[i] = t.rowAt(h, at[i])
		}
		rows, hashes = rows[len(its):], hashes[len(its):]
	}
}

// rowAt returns the row of the key at an index of places, counted over all slices, or -1 of one below 0.
func (t *Table) rowAt(h Hash, at int) int64 {
	if at < 0 {
		return -1
	}
	return int64(t.Row(h, t.rows.places[at].number-1))
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
	added, missing = t.insertAll(rows, uses, missing, step)
	if len(missing) > 0 {
		added = append(added, t.giveSome(rows, uses, missing, step)...)
	}
	t.Stats.Admitted += int64(len(added))
	return added
}

// giveSome gives rows to those of the missing ones of uses that the Policy admits, as far as their slices have any, and sets
// rows of all.
func (t *Table) giveSome(rows []int64, uses []Use, missing []int32, step int32) (added []Entry) {
	for i, fresh := range t.bySlice(uses, missing) {
		if len(fresh) > 0 {
			slices.SortFunc(fresh, func(a, b Use) int { return cmp.Compare(a.Hash, b.Hash) })
			added = append(added, t.give(i, t.admit(i, merge(fresh), step), step)...)
		}
	}
	for _, m := range missing {
		at, ok := t.rows.search(uses[m].Hash)
		if !ok {
			at = -1
		}
		rows[m] = t.rowAt(uses[m].Hash, at)
	}
	return added
}

// note counts the uses of keys with a row and sets rows of them; missing are the numbers of the other uses.
func (t *Table) note(rows []int64, uses []Use, step int32) (missing []int32) {
	var hashes [batch]Hash
	var places [batch]int
	for first := 0; first < len(uses); first += batch {
		its := uses[first:min(first+batch, len(uses))]
		for i, u := range its {
			hashes[i] = u.Hash
		}
		at := places[:len(its)]
		t.rows.locate(at, hashes[:len(its)])
		readAhead(t.rows.counts, at)
		for i, u := range its {
			t.Stats.Uses += u.Count
			if at[i] < 0 {
				missing = append(missing, int32(first+i))
				continue
			}
			t.Stats.Hits += u.Count
			t.rows.use(at[i], u.Count, step)
			rows[first+i] = t.rowAt(u.Hash, at[i])
		}
	}
	return missing
}

// insertAll gives rows to those of the missing ones of uses whose slices have room for all of theirs, if keys have rows at
// once, and sets rows of them. It returns the numbers of the others.
func (t *Table) insertAll(rows []int64, uses []Use, missing []int32, step int32) (added []Entry, others []int32) {
	if t.Policy.Admit > 1 {
		return nil, missing
	}
	g := &t.rows
	room := make([]int, len(g.slices)) // when all have theirs
	for i, s := range g.slices {
		room[i] = t.Policy.Rows - s.live
	}
	for _, m := range missing {
		room[uses[m].Hash.Slice()-g.first]--
	}
	added = make([]Entry, 0, len(missing))
	var places [batch]int
	for len(missing) > 0 {
		its := missing[:min(batch, len(missing))]
		at := places[:len(its)]
		for i, m := range its {
			at[i] = g.start(uses[m].Hash)
		}
		readAhead(g.places, at)
		readAhead(g.counts, at)
		for _, m := range its {
			u := uses[m]
			if room[u.Hash.Slice()-g.first] < 0 {
				others = append(others, m)
				continue
			}
			at, again := g.search(u.Hash)
			if again {
				g.use(at, u.Count, step)
			} else {
				added = append(added, Entry{Hash: u.Hash, Last: step, Count: add(0, u.Count)})
				at = g.insertAt(at, &added[len(added)-1])
			}
			rows[m] = t.rowAt(u.Hash, at)
		}
		missing = missing[len(its):]
	}
	return added, others
}

// bySlice divides the missing ones of uses into those of each slice.
func (t *Table) bySlice(uses []Use, missing []int32) [][]Use {
	lists, ends := make([][]Use, len(t.rows.slices)), make([]int, len(t.rows.slices)+1)
	for _, m := range missing {
		ends[uses[m].Hash.Slice()-t.rows.first+1]++
	}
	all := make([]Use, len(missing))
	for i := range lists {
		ends[i+1] += ends[i]
		lists[i] = all[ends[i]:ends[i]:ends[i+1]]
	}
	for _, m := range missing {
		i := uses[m].Hash.Slice() - t.rows.first
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
	c := &t.candidates
	list = make([]Entry, 0, len(uses))
	var fresh []Entry // candidates that were none
	for _, u := range uses {
		e := Entry{Hash: u.Hash, Count: add(0, u.Count), Last: step}
		at, counted := c.search(u.Hash)
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
	kept, _ := c.room(i, t.Policy.Rows, fresh, step)
	for k := range kept {
		c.insert(&kept[k])
	}
	return list
}

// give gives rows of slice i to the keys of list.
func (t *Table) give(i int, list []Entry, step int32) []Entry {
	kept, evicted := t.rows.room(i, t.Policy.Rows, list, step)
	t.Stats.Evicted += int64(evicted)
	t.Stats.Refused += int64(len(list) - len(kept))
	for k := range kept {
		t.rows.insert(&kept[k])
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
	t.rows.undo()
	t.candidates.undo()
	t.Stats = t.before
}

// Forget ends what Begin began, and lets the changes stand.
func (t *Table) Forget() {
	t.rows.forget()
	t.candidates.forget()
}

// Expire takes the rows of keys that have not been used for Policy.Expire steps or more.
func (t *Table) Expire(step int32) {
	t.Stats.Expired += int64(t.expire(&t.rows, step))
	t.expire(&t.candidates, step)
}

func (t *Table) expire(g *group, step int32) (n int) {
	for i := range g.slices {
		old := g.collect(i, func(last int32) bool { return int(step)-int(last) >= t.Policy.Expire })
		for _, e := range old {
			g.remove(e.Hash)
		}
		n += len(old)
	}
	return n
}

// Entries returns the keys that have a row, or with candidates those that have none,
// ascending by hash.
func (t *Table) Entries(candidates bool) []Entry {
	g := &t.rows
	if candidates {
		g = &t.candidates
	}
	all := make([]Entry, 0, g.count())
	for i := range g.slices {
		its := g.collect(i, func(int32) bool { return true })
		slices.SortFunc(its, func(a, b Entry) int { return cmp.Compare(a.Hash, b.Hash) })
		all = append(all, its...)
	}
	return all
}

// Put adds an entry of another table, whose key this table must not have, and returns its
// row; ok is false if its slice is full.
func (t *Table) Put(e Entry, candidate bool) (row int, ok bool) {
	g := &t.rows
	if candidate {
		g = &t.candidates
	}
	if g.slice(e.Hash).live == t.Policy.Rows {
		return 0, false
	}
	g.insert(&e)
	return t.Row(e.Hash, e.Slot), true
}

// Clear takes all keys out. The statistics go on.
func (t *Table) Clear() {
	t.rows, t.candidates = newGroup(t.rows.first, len(t.rows.slices)), newGroup(t.candidates.first, len(t.candidates.slices))
}

// add returns a + n, at most 2³²-1.
func add(a uint32, n int64) uint32 { return uint32(min(int64(a)+n, math.MaxUint32)) }
