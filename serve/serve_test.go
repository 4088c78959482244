package serve_test

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gorun-spmd/gorun/serve"
)

// rows lists a map as a table's rows, in one buffer.
func rows(m map[int64][]float32) iter.Seq2[int64, []float32] {
	return func(yield func(int64, []float32) bool) {
		var row []float32
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if row = append(row[:0], m[key]...); !yield(key, row) {
				return
			}
		}
	}
}

func open(t testing.TB, path string) *serve.Live {
	t.Helper()
	live, err := serve.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := live.Close(); err != nil {
			t.Error(err)
		}
	})
	return live
}

// same fails unless a table has exactly the rows of a map.
func same(t *testing.T, table *serve.Table, want map[int64][]float32) {
	t.Helper()
	got := map[int64][]float32{}
	for key, row := range table.All() {
		if got[key] != nil {
			t.Fatalf("All has key %d twice", key)
		}
		got[key] = row
	}
	if len(got) != len(want) || table.Len() != len(want) {
		t.Fatalf("%d keys, Len %d, want %d", len(got), table.Len(), len(want))
	}
	for key, row := range want {
		mapped, ok := table.Row(key)
		if !ok || !slices.Equal(mapped, row) || !slices.Equal(got[key], row) {
			t.Fatalf("the row of key %d is %v, in All %v, want %v", key, mapped, got[key], row)
		}
	}
	for _, key := range []int64{-1, 1 << 40, math.MinInt64, math.MaxInt64, 77} {
		if _, ok := table.Row(key); ok != (want[key] != nil) {
			t.Fatalf("key %d: %v", key, ok)
		}
	}
}

// Tables are written and updated at random, with row numbers or with any keys, and are
// what a map is.
func TestRandomUpdatesAgainstMaps(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		path, dim := filepath.Join(t.TempDir(), "t"), 1+rng.IntN(9)
		want := map[int64][]float32{}
		put := func(key int64) {
			want[key] = make([]float32, dim)
			for j := range dim {
				want[key][j] = float32(rng.IntN(100))
			}
		}
		for k := range int64(rng.IntN(200)) {
			if seed%2 == 0 {
				k = int64(rng.Uint64())
			}
			put(k)
		}
		if seed%4 == 0 {
			put(math.MinInt64)
			put(math.MaxInt64)
			put(0)
		}
		if err := serve.Write(path, dim, rows(want)); err != nil {
			t.Fatal(err)
		}
		live := open(t, path)
		for range 8 {
			if err := live.View(func(table *serve.Table) {
				same(t, table, want)
				if err := table.Verify(); err != nil {
					t.Fatal(err)
				}
			}); err != nil {
				t.Fatal(err)
			}
			before := maps.Clone(want)
			changes := 0
			for _, key := range slices.Sorted(maps.Keys(want)) {
				switch rng.IntN(8) {
				case 0:
					delete(want, key)
					changes++
				case 1:
					put(key)
				}
			}
			for range rng.IntN(5) {
				put(rng.Int64N(300))
			}
			if rng.IntN(5) == 0 {
				want = before
			}
			wantChanged, wantRemoved := 0, 0
			for key := range before {
				if want[key] == nil {
					wantRemoved++
				}
			}
			for key, row := range want {
				if !slices.Equal(row, before[key]) {
					wantChanged++
				}
			}
			if rng.IntN(6) == 0 {
				if err := serve.Write(path, dim, rows(want)); err != nil {
					t.Fatal(err)
				}
			} else {
				changed, removed, err := serve.Update(path, rows(want))
				if err != nil || changed != wantChanged || removed != wantRemoved {
					t.Fatalf("seed %d: %d changed, %d removed, %v; want %d and %d", seed, changed, removed, err, wantChanged, wantRemoved)
				}
				news, err := live.Reload()
				if err != nil || news != (changed+removed > 0) {
					t.Fatalf("seed %d: reload says %v, %v after %d changes", seed, news, err, changed+removed)
				}
			}
			if _, err := live.Reload(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Readers that look up while tables are written, updated and reloaded see one version at a
// time, and none before one they have seen.
func TestReadersSeeWholeVersions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t")
	version := func(v int) map[int64][]float32 {
		m := map[int64][]float32{}
		for key := range int64(200) {
			if key%7 != int64(v%7) { // some come and go
				m[key] = []float32{float32(v), float32(v)}
			}
		}
		return m
	}
	if err := serve.Write(path, 2, rows(version(0))); err != nil {
		t.Fatal(err)
	}
	live := open(t, path)
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			last := float32(-1)
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := live.View(func(table *serve.Table) {
					v := float32(-1)
					for key := range int64(200) {
						row, ok := table.Row(key)
						if !ok {
							continue
						}
						if v < 0 {
							v = row[0]
						}
						if row[0] != v || row[1] != v || int(key%7) == int(v)%7 {
							t.Errorf("key %d has %v in version %v", key, row, v)
						}
					}
					if v < last {
						t.Errorf("version %v after %v", v, last)
					}
					last = v
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for v := 1; v < 40; v++ {
		var err error
		if v%5 == 0 {
			err = serve.Write(path, 2, rows(version(v)))
		} else {
			_, _, err = serve.Update(path, rows(version(v)))
		}
		if err == nil {
			_, err = live.Reload()
		}
		if err != nil {
			t.Error(err)
			break
		}
	}
	close(done)
	readers.Wait()
	if err := live.Close(); err != nil {
		t.Error(err)
	}
	if err := live.View(func(*serve.Table) {}); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("a view after Close: %v", err)
	}
	if _, err := live.Reload(); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("a reload after Close: %v", err)
	}
}

func TestBagsAndTopK(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	const dim = 19
	want := map[int64][]float32{}
	for k := range int64(500) {
		for range dim {
			want[k*3] = append(want[k*3], float32(rng.IntN(9)-4))
		}
	}
	path := filepath.Join(t.TempDir(), "t")
	if err := serve.Write(path, dim, rows(want)); err != nil {
		t.Fatal(err)
	}
	for k := range int64(100) {
		want[k*7] = slices.Clone(want[6])
		want[k*7][2]++
	}
	want[9] = slices.Repeat([]float32{float32(math.NaN())}, dim)
	delete(want, 12)
	if _, _, err := serve.Update(path, rows(want)); err != nil {
		t.Fatal(err)
	}
	if err := open(t, path).View(func(table *serve.Table) {
		query := make([]float32, dim)
		for i := range query {
			query[i] = float32(rng.IntN(5) - 2)
		}
		var all []serve.Match
		for key, row := range want {
			m := serve.Match{Key: key}
			for j, v := range row {
				m.Score += v * query[j]
			}
			if m.Score == m.Score {
				all = append(all, m)
			}
		}
		slices.SortFunc(all, func(a, b serve.Match) int { return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Key, b.Key)) })
		for _, k := range []int{0, 1, 2, 10, 100, 1000} {
			if got := table.TopK(query, k); !slices.Equal(got, all[:min(k, len(all))]) {
				t.Errorf("the best %d are %v, want %v", k, got, all[:min(k, len(all))])
			}
		}
		if got := table.TopK(query[1:], 3); got != nil {
			t.Errorf("a short query has the matches %v", got)
		}
		dst := make([]float32, dim)
		keys := []int64{0, 13, 3, 15, 3} // 13 is not there
		for _, mode := range []serve.Mode{serve.Mean, serve.Sum, serve.Max} {
			if found := table.Bag(dst, mode, keys...); found != 4 {
				t.Errorf("%d keys found, want 4", found)
			}
			for j := range dst {
				sum, most := float32(0), float32(math.Inf(-1))
				for _, key := range keys {
					v := float32(0)
					if want[key] != nil {
						v = want[key][j]
					}
					sum, most = sum+v, max(most, v)
				}
				if w := []float32{sum / 5, sum, most}[mode]; dst[j] != w {
					t.Errorf("mode %d: number %d is %v, want %v", mode, j, dst[j], w)
				}
			}
		}
		if table.Bag(dst, serve.Max); slices.Max(dst) != 0 || slices.Min(dst) != 0 {
			t.Errorf("no keys give %v", dst)
		}
		for want, bag := range map[string]func(){
			"serve: Table.Bag: dst has 1 numbers and a row ":                           func() { table.Bag(dst[:1], serve.Sum, 1) },
			fmt.Sprintf("serve: Table.Bag: dst has %d numbers and a row ", len(dst)+1): func() { table.Bag(append(dst, 0), serve.Sum, 1) },
			"serve: Table.Bag: there is no mode 3; give ":                              func() { table.Bag(dst, serve.Max+1, 1) },
		} {
			func() {
				defer func() {
					if got := fmt.Sprint(recover()); !strings.HasPrefix(got, want) {
						t.Errorf("%s, want %s", got, want)
					}
				}()
				bag()
			}()
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// Files that are cut off, damaged or no tables are errors that name the file, and Reload
// keeps what it had.
func TestDamagedFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "users.table")
	table := map[int64][]float32{5: {1, 2}, -9: {3, 4}, 1 << 50: {5, 6}}
	if err := serve.Write(path, 2, rows(table)); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	live := open(t, path)
	replace := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(path+".new", b, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(b []byte, want string) {
		t.Helper()
		replace(b)
		_, opened := serve.Open(path)
		_, reloaded := live.Reload()
		for _, err := range []error{opened, reloaded} {
			if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), want) {
				t.Errorf("the error is %v, want one with %s and %q", err, path, want)
			}
		}
		if err := live.View(func(now *serve.Table) { same(t, now, table) }); err != nil {
			t.Error(err)
		}
	}
	for n := range whole {
		if n < 8 || n%97 == 0 || n > len(whole)-4 {
			refused(whole[:n], "cut off")
		}
	}
	refused(append(slices.Clone(whole), 0), "should have")
	refused(bytes.Repeat([]byte("no table"), 1000), "no table that Write")
	for at := range 72 {
		b := slices.Clone(whole)
		b[at] ^= 0x10
		refused(b, "users.table")
	}
	b := slices.Clone(whole)
	b[len(b)-9] ^= 1
	replace(b)
	if err := open(t, path).View(func(now *serve.Table) {
		if err := now.Verify(); err == nil || !strings.Contains(err.Error(), "checksum") {
			t.Errorf("Verify of a damaged file: %v", err)
		}
	}); err != nil {
		t.Error(err)
	}
	if _, err := serve.Open(filepath.Join(dir, "none")); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := serve.Open(dir); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a folder: %v", err)
	}
}

func TestMisuse(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "t")
	list := func(keys []int64, row ...float32) iter.Seq2[int64, []float32] {
		return func(yield func(int64, []float32) bool) {
			for _, key := range keys {
				if !yield(key, row) {
					return
				}
			}
		}
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{serve.Write(path, 2, list([]int64{3, 4, 3}, 1, 2)), "key 3 is there twice"},
		{serve.Write(path, 3, list([]int64{3}, 1, 2)), "the row of key 3 has 2 numbers and the table 3"},
		{serve.Write(path, 0, list(nil)), "rows have 0 numbers"},
		{serve.Write(filepath.Join(dir, "none", "t"), 1, list(nil)), "no such file"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("the error is %v, want one with %q", c.err, c.want)
		}
	}
	if _, _, err := serve.Update(path, list(nil)); err == nil ||
		!strings.Contains(err.Error(), "no such file or directory; write all rows there before") {
		t.Errorf("an update of nothing: %v", err)
	}
	if err := serve.Write(path, 2, list(nil)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := serve.Update(path, list([]int64{1}, 1)); err == nil || !strings.Contains(err.Error(), "1 numbers and the table 2") {
		t.Errorf("an update of rows of another length: %v", err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("after errors the folder has %v, %v", left, err)
	}
	if changed, _, err := serve.Update(path, list([]int64{1, 2}, 1, 2)); changed != 2 || err != nil {
		t.Errorf("%d changed, %v", changed, err)
	}
	if err := os.Rename(path+".1", path); err != nil {
		t.Fatal(err)
	}
	if _, err := serve.Open(path); err == nil || !strings.Contains(err.Error(), "renamed") {
		t.Errorf("an update in the place of a table: %v", err)
	}
}

// Whatever is in a file, opening and reading it ends.
func FuzzOpen(f *testing.F) {
	path := filepath.Join(f.TempDir(), "t")
	for _, m := range []map[int64][]float32{{}, {0: {1}, 1: {2}}, {7: {1}, -3: {2}, 1 << 60: {3}}} {
		if err := serve.Write(path, 1, rows(m)); err != nil {
			f.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	path = filepath.Join(filepath.Dir(path), fmt.Sprint(os.Getpid())) // workers of a fuzz run are processes
	f.Fuzz(func(t *testing.T, b []byte) {
		serve.Reseal(b)
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		live, err := serve.Open(path)
		if err != nil {
			return
		}
		if err := live.View(func(table *serve.Table) {
			for key := range int64(20) {
				table.Row(key - 4)
			}
			n := 0
			for key := range table.All() {
				table.Row(key)
				if n++; n > 1000 {
					break
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
		if err := live.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func Example() {
	dir, err := os.MkdirTemp("", "serve")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "items.table")
	items := map[int64][]float32{1000: {1, 0}, 2000: {0, 1}, 3000: {0.6, 0.8}}
	if err := serve.Write(path, 2, rows(items)); err != nil { // in training: package embedding does it
		fmt.Println(err)
		return
	}
	live, err := serve.Open(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer live.Close()
	for range 2 {
		err = live.View(func(t *serve.Table) {
			row, ok := t.Row(3000)
			fmt.Println(t.Len(), row, ok, t.TopK([]float32{0, 1}, 2))
		})
		if err != nil {
			fmt.Println(err)
		}
		items[3000] = []float32{0, 2}
		changed, removed, err := serve.Update(path, rows(items))
		if err != nil {
			fmt.Println(err)
		}
		reloaded, err := live.Reload()
		fmt.Println(changed, removed, reloaded, err)
	}
	// Output:
	// 3 [0.6 0.8] true [{2000 1} {3000 0.8}]
	// 1 0 true <nil>
	// 3 [0 2] true [{3000 2} {2000 1}]
	// 0 0 false <nil>
}

// A table of a million rows of 64, and rows of keys as they come at random.
func BenchmarkRow(b *testing.B) {
	path := filepath.Join(b.TempDir(), "t")
	const n = 1_000_000
	row := make([]float32, 64)
	if err := serve.Write(path, 64, func(yield func(int64, []float32) bool) {
		for k := range int64(n) {
			row[0] = float32(k)
			if !yield(k*k*7919, row) {
				return
			}
		}
	}); err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 0))
	keys := make([]int64, 1<<16)
	for i := range keys {
		k := rng.Int64N(n)
		keys[i] = k * k * 7919
	}
	sum := float32(0)
	if err := open(b, path).View(func(t *serve.Table) {
		for _, row := range t.All() { // from the disk
			sum += row[0]
		}
		for i := 0; b.Loop(); i++ {
			row, ok := t.Row(keys[i&(1<<16-1)])
			if !ok {
				b.Fatal("a key is missing")
			}
			sum += row[0]
		}
	}); err != nil {
		b.Fatal(err)
	}
}

// Opening a table of 4 GB, as a file with a hole, and its first lookup.
func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "t")
	if err := serve.WriteEmpty(path, 64, 1<<24); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		live, err := serve.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		if err := live.View(func(t *serve.Table) {
			if _, ok := t.Row(9_999_999); !ok || t.Len() != 1<<24 {
				b.Fatal("a row is missing")
			}
		}); err != nil {
			b.Fatal(err)
		}
		if err := live.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
