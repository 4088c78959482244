package rowstore

import (
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// mappedTwin is a twin in a folder, of which row 7 is in the file alone, with rows beside it, and the system says of all pages that
// they are in its cache, or of none.
func mappedTwin(t *testing.T, rows int, all bool) (w *twin, asked *int) {
	t.Helper()
	w = newTwin(t, nil, rows, 32)
	if err := errors.Join(w.fill(rows), w.hold([]int64{7}, true), w.fillFrom(rows-40, rows), w.Sync()); err != nil {
		t.Fatal(err)
	}
	if _, held := w.find(7); held || w.mapped == nil {
		t.Fatalf("row 7 is in memory: %v; the file is mapped: %v", held, w.mapped != nil)
	}
	asked = new(int)
	w.mapped.cached = func(_, pages []byte) bool {
		*asked++
		for i := range pages {
			pages[i] = 0
			if all {
				pages[i] = 1
			}
		}
		return true
	}
	t.Cleanup(func() { _ = w.Close() }) // nothing is kept
	return w, asked
}

// Rows are the same whether the system has none, some or all of the file in its cache, or does not say.
func TestMappedAgainstAMap(t *testing.T) {
	const rows = 3000 // some fifteen pages
	for name, cached := range map[string]func(rng *rand.Rand, pages []byte) bool{
		"none": func(_ *rand.Rand, pages []byte) bool { clear(pages); return true },
		"some": func(rng *rand.Rand, pages []byte) bool {
			for i := range pages {
				pages[i] = byte(rng.Uint32())
			}
			return true
		},
		"all": func(_ *rand.Rand, pages []byte) bool {
			for i := range pages {
				pages[i] = 1
			}
			return true
		},
		"unknown": func(*rand.Rand, []byte) bool { return false },
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := mappedTwin(t, rows, true)
			w.mapped.cached = func(_, pages []byte) bool { return cached(rand.New(rand.NewPCG(3, 0)), pages) }
			before := w.Stats().BytesRead
			if err := errors.Join(w.run(rand.New(rand.NewPCG(4, 0)), rows, 300, never), w.whole(rows)); err != nil {
				t.Error(err)
			}
			if w.Stats().BytesRead == before {
				t.Error("nothing was read")
			}
		})
	}
}

// Records that lie close to each other are read in the mapping: a file that gives nothing else gives them.
func TestMappedReads(t *testing.T) {
	for _, all := range []bool{true, false} {
		w, asked := mappedTwin(t, 400, all)
		w.file = &memory{}
		err := w.ReadRows(0, 7, make([]byte, 6*8))
		if all && err != nil {
			t.Errorf("rows in the system's cache: %v", err)
		}
		if !all && (err == nil || !strings.Contains(err.Error(), "cut off")) {
			t.Errorf("rows that are not in its cache were not read from the file: %v", err)
		}
		if *asked == 0 {
			t.Error("the system was not asked what it has in its cache")
		}
	}
}

// A file that is cut off or damaged while pages of it are said to be there is an error that names file, table and row.
func TestMappedFileThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(f *os.File, at int64) error
		want   string
	}{
		"truncated": {func(f *os.File, _ int64) error { return f.Truncate(0) }, "it is cut off"},
		"damaged":   {func(f *os.File, at int64) error { _, err := f.WriteAt([]byte{1, 2, 3}, at+3); return err }, "the record is damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			w, asked := mappedTwin(t, 400, true)
			at, ok := w.log.find(7)
			if !ok {
				t.Fatal("the file does not have row 7")
			}
			if err := c.damage(w.file.(*os.File), int64(at*w.record)); err != nil {
				t.Fatal(err)
			}
			err := w.ReadRows(0, 7, make([]byte, 6*8))
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Row != 1007 || e.Table != "users" || e.File != w.path || !strings.Contains(e.Error(), c.want) {
				t.Errorf("got %v", err)
			}
			if *asked == 0 {
				t.Error("the mapping was not used")
			}
		})
	}
}

// The system has in its cache what was just written, and nothing beyond the file's end.
func TestCached(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	page := os.Getpagesize()
	if _, err := f.Write(make([]byte, page)); err != nil {
		t.Fatal(err)
	}
	m := newMapping(f, 3*page)
	if m == nil {
		t.Fatal("the file was not mapped")
	}
	defer m.close()
	pages := make([]byte, 3)
	if !m.cached(m.bytes, pages) || pages[0]&1 == 0 || pages[2]&1 != 0 {
		t.Errorf("got %v", pages)
	}
}
