package keytable

import (
	"cmp"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestMixIsReversible(t *testing.T) {
	for _, key := range []int64{0, 1, -1, math.MinInt64, math.MaxInt64, 1 << 32, 123456789012345} {
		if got := Mix(key).Key(); got != key {
			t.Errorf("key %d comes back as %d", key, got)
		}
	}
	rng := rand.New(rand.NewPCG(1, 0))
	for range 10000 {
		if key := int64(rng.Uint64()); Mix(key).Key() != key {
			t.Fatalf("key %d comes back as %d", key, Mix(key).Key())
		}
	}
}

// A twin does with maps and full sorts what a Table does.
type twin struct {
	policy     Policy
	stats      Stats
	rows       map[Hash]Entry
	candidates map[Hash]Entry
}

// of returns the keys of a slice.
func of(m map[Hash]Entry, slice int) (list []Entry) {
	for _, e := range m {
		if e.Hash.Slice() == slice {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, byRank)
	return list
}

// room is slice.room.
func (w *twin) room(m map[Hash]Entry, slice int, fresh []Entry, step int32) (kept []Entry, evicted int) {
	slices.SortFunc(fresh, func(a, b Entry) int { return byRank(b, a) })
	its := of(m, slice)
	if need := len(its) + len(fresh) - w.policy.Rows; need > 0 {
		need = max(need, w.policy.Rows/16)
		for _, e := range its {
			if e.Last != step && evicted < need {
				delete(m, e.Hash)
				evicted++
			}
		}
	}
	return fresh[:min(len(fresh), w.policy.Rows-len(its)+evicted)], evicted
}

func (w *twin) use(uses []Use, step int32) (added []Hash) {
	total := map[Hash]int64{}
	for _, u := range uses {
		total[u.Hash] += u.Count
		w.stats.Uses += u.Count
	}
	list, fresh := map[int][]Entry{}, map[int][]Entry{}
	for h, n := range total {
		if e, ok := w.rows[h]; ok {
			w.stats.Hits += n
			e.Count, e.Last = add(e.Count, n), step
			w.rows[h] = e
			continue
		}
		before, ok := w.candidates[h]
		e := Entry{Hash: h, Count: add(before.Count, n), Last: step}
		switch {
		case int64(e.Count) >= int64(w.policy.Admit):
			delete(w.candidates, h)
			list[h.Slice()] = append(list[h.Slice()], e)
		case ok:
			w.candidates[h] = e
		default:
			fresh[h.Slice()] = append(fresh[h.Slice()], e)
		}
	}
	for k, its := range fresh {
		kept, _ := w.room(w.candidates, k, its, step)
		for _, e := range kept {
			w.candidates[e.Hash] = e
		}
	}
	for k, its := range list {
		kept, evicted := w.room(w.rows, k, its, step)
		w.stats.Evicted += int64(evicted)
		w.stats.Refused += int64(len(its) - len(kept))
		for _, e := range kept {
			w.rows[e.Hash] = e
			added = append(added, e.Hash)
		}
	}
	w.stats.Admitted += int64(len(added))
	slices.Sort(added)
	return added
}

func (w *twin) expire(step int32) {
	for _, m := range []map[Hash]Entry{w.rows, w.candidates} {
		maps.DeleteFunc(m, func(_ Hash, e Entry) bool { return int(step-e.Last) >= w.policy.Expire })
	}
}

// history returns what a table knows of its keys.
func history(list []Entry) (all [][4]int64) {
	for _, e := range list {
		all = append(all, [4]int64{int64(e.Hash), int64(e.Count), int64(e.Last)})
	}
	return all
}

func sorted(m map[Hash]Entry) []Entry {
	return slices.SortedFunc(maps.Values(m), func(a, b Entry) int { return cmp.Compare(a.Hash, b.Hash) })
}

// TestRandomProgramsAgainstMaps runs the same uses on one table, on one divided in parts
// whose uses come in other orders, and on maps.
func TestRandomProgramsAgainstMaps(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 0))
		p := Policy{Rows: 1 + rng.IntN(40), Admit: rng.IntN(4), Expire: 1 + rng.IntN(20)}
		parts := 1 + rng.IntN(5)
		whole := New(0, Slices, p)
		var divided []*Table
		for i := range parts {
			first, end := Slices*i/parts, Slices*(i+1)/parts
			divided = append(divided, New(first, end-first, p))
		}
		w := &twin{policy: p, rows: map[Hash]Entry{}, candidates: map[Hash]Entry{}}
		population := int64(1 + rng.IntN(10*Slices))
		for step := range int32(20) {
			if rng.IntN(2) == 0 {
				undone(t, whole, func() {
					for range 1 + rng.IntN(3) {
						its := someUses(rng, population)
						whole.Use(make([]int64, len(its)), its, step)
					}
				})
			}
			uses := someUses(rng, population)
			whole.Begin()
			want := w.use(uses, step)
			var got, gotDivided []Hash
			rows, found, hashes := make([]int64, len(uses)), make([]int64, len(uses)), make([]Hash, len(uses))
			for i, u := range uses {
				hashes[i] = u.Hash
			}
			for _, e := range whole.Use(rows, uses, step) {
				got = append(got, e.Hash)
			}
			whole.Forget()
			if whole.Find(found, hashes); !slices.Equal(rows, found) {
				t.Fatalf("seed %d step %d: Use gives rows %v, and Find then %v", seed, step, rows, found)
			}
			rng.Shuffle(len(uses), func(i, j int) { uses[i], uses[j] = uses[j], uses[i] })
			for i, d := range divided {
				var its []Use
				for _, u := range uses {
					if k := u.Hash.Slice(); k >= Slices*i/parts && k < Slices*(i+1)/parts {
						its = append(its, u)
					}
				}
				for _, e := range d.Use(make([]int64, len(its)), its, step) {
					gotDivided = append(gotDivided, e.Hash)
				}
			}
			slices.Sort(got)
			slices.Sort(gotDivided)
			if !slices.Equal(got, want) || !slices.Equal(gotDivided, want) {
				t.Fatalf("seed %d step %d: %d keys added, in %d parts %d, want %d", seed, step, len(got), parts, len(gotDivided), len(want))
			}
			if rng.IntN(3) == 0 {
				rows := len(w.rows)
				w.expire(step)
				w.stats.Expired += int64(rows - len(w.rows))
				whole.Expire(step)
				for _, d := range divided {
					d.Expire(step)
				}
			}
			for _, candidates := range []bool{false, true} {
				want := history(sorted(w.rows))
				if candidates {
					want = history(sorted(w.candidates))
				}
				var all []Entry
				for _, d := range divided {
					all = append(all, d.Entries(candidates)...)
				}
				if got := history(whole.Entries(candidates)); !slices.Equal(got, want) || !slices.Equal(history(all), want) {
					t.Fatalf("seed %d step %d candidates %v: %d keys, in parts %d, want %d", seed, step, candidates, len(got), len(all), len(want))
				}
			}
			if whole.Stats != w.stats {
				t.Fatalf("seed %d step %d: %+v, want %+v", seed, step, whole.Stats, w.stats)
			}
			checkSlots(t, whole)
		}
	}
}

// someUses returns some uses of keys below population, and of a few others.
func someUses(rng *rand.Rand, population int64) (uses []Use) {
	for range rng.IntN(600) {
		key := int64(float64(population) * math.Pow(rng.Float64(), 3))
		if rng.IntN(100) == 0 {
			key = []int64{math.MinInt64, math.MaxInt64, 0, -1}[rng.IntN(4)]
		}
		uses = append(uses, Use{Mix(key), int64(1 + rng.IntN(3))})
	}
	return uses
}

// undone runs f, takes back what it did, and fails unless each key has the row and the history that it had.
func undone(t *testing.T, table *Table, f func()) {
	t.Helper()
	state := func() (all [2][]Entry) { return [2][]Entry{table.Entries(false), table.Entries(true)} }
	before, stats := state(), table.Stats
	table.Begin()
	f()
	table.Undo()
	if after := state(); !slices.Equal(after[0], before[0]) || !slices.Equal(after[1], before[1]) || table.Stats != stats {
		t.Fatalf("after Undo %d keys, %d candidates, %+v; before %d, %d, %+v", len(after[0]), len(after[1]), table.Stats, len(before[0]),
			len(before[1]), stats)
	}
	checkSlots(t, table)
}

// checkSlots fails if Find does not find every key, or two have one row.
func checkSlots(t *testing.T, table *Table) {
	t.Helper()
	all := table.Entries(false)
	var hashes []Hash
	for _, e := range all {
		hashes = append(hashes, e.Hash)
	}
	hashes = append(hashes, Mix(987654321987654321)) // nobody has used it
	rows, seen := make([]int64, len(hashes)), map[int64]bool{}
	table.Find(rows, hashes)
	for i, e := range all {
		if rows[i] != int64(table.Row(e.Hash, e.Slot)) || rows[i] >= int64(Slices*table.Policy.Rows) || seen[rows[i]] {
			t.Fatalf("key %d has row %d, want %d, or another key has it", e.Hash.Key(), rows[i], table.Row(e.Hash, e.Slot))
		}
		seen[rows[i]] = true
	}
	if rows[len(all)] != -1 {
		t.Fatalf("a key that nobody used has row %d", rows[len(all)])
	}
}

func TestPutAndClear(t *testing.T) {
	a, b := New(0, Slices, Policy{Rows: 3, Admit: 2}), New(0, Slices, Policy{Rows: 3, Admit: 2})
	var uses []Use
	for key := range int64(900) {
		uses = append(uses, Use{Mix(key), 1 + key%2})
	}
	a.Use(make([]int64, len(uses)), uses, 5)
	for _, candidate := range []bool{false, true} {
		for _, e := range a.Entries(candidate) {
			if _, ok := b.Put(e, candidate); !ok {
				t.Fatalf("no room for key %d", e.Hash.Key())
			}
		}
		if !slices.Equal(history(a.Entries(candidate)), history(b.Entries(candidate))) {
			t.Fatalf("candidates %v: other keys than were put in", candidate)
		}
	}
	checkSlots(t, b)
	full := a.Entries(false)
	n := 0
	for _, e := range full {
		if e.Hash.Slice() == full[0].Hash.Slice() {
			n++
		}
	}
	if n == 3 {
		if _, ok := b.Put(Entry{Hash: full[0].Hash ^ 1<<40}, false); ok {
			t.Error("a full slice takes a key")
		}
	}
	if b.Clear(); b.Len()+b.Candidates() != 0 {
		t.Errorf("%d keys and %d candidates after Clear", b.Len(), b.Candidates())
	}
}

func TestCountsDoNotOverflow(t *testing.T) {
	a := New(0, Slices, Policy{Rows: 1})
	a.Use(make([]int64, 2), []Use{{Mix(1), math.MaxUint32}, {Mix(1), 7}}, 1)
	if e := a.Entries(false); len(e) != 1 || e[0].Count != math.MaxUint32 {
		t.Errorf("%+v", e)
	}
}

func BenchmarkFind(b *testing.B) {
	const keys = 10_000_000
	table := New(0, Slices, Policy{Rows: keys / 200})
	hashes := make([]Hash, keys)
	for at := 0; at < keys; at += 1 << 16 {
		var uses []Use
		for k := at; k < min(at+1<<16, keys); k++ {
			hashes[k] = Mix(int64(k))
			uses = append(uses, Use{hashes[k], 1})
		}
		table.Use(make([]int64, len(uses)), uses, 1)
	}
	rng := rand.New(rand.NewPCG(1, 0))
	rng.Shuffle(keys, func(i, j int) { hashes[i], hashes[j] = hashes[j], hashes[i] })
	rows := make([]int64, 1<<15)
	b.ResetTimer()
	at, n := 0, 0
	for b.Loop() {
		if at+len(rows) > keys {
			at = 0
		}
		table.Find(rows, hashes[at:at+len(rows)])
		at, n = at+len(rows), n+len(rows)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "Mkeys/s")
}

func BenchmarkInsert(b *testing.B) {
	n := 0
	for b.Loop() {
		b.StopTimer()
		table := New(0, Slices, Policy{Rows: 1 << 14})
		b.StartTimer()
		for at := range 32 {
			uses := make([]Use, 1<<15)
			for i := range uses {
				uses[i] = Use{Mix(int64(at<<15 + i)), 1}
			}
			table.Use(make([]int64, len(uses)), uses, int32(at))
			n += len(uses)
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "Mkeys/s")
}
