package corpus

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/data/tokenizer"
)

// texts writes some files and returns their directory and options to prepare them.
func texts(t testing.TB) PrepareOptions {
	t.Helper()
	root := t.TempDir()
	for i := range 40 {
		text := strings.Repeat(fmt.Sprintf("func f%d(x int) int {\n\treturn x + %d\n}\n", i, i), 3)
		if err := os.WriteFile(filepath.Join(root, fmt.Sprintf("f%02d.go", i)), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return PrepareOptions{
		Corpus:    Options{Paths: []string{root}},
		VocabSize: 400,
		CacheDir:  filepath.Join(t.TempDir(), "cache"),
		Warn:      func(text string) { t.Errorf("warning: %s", text) },
	}
}

func prepare(t testing.TB, o PrepareOptions) *Dataset {
	t.Helper()
	d, err := Prepare(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// sameData compares all but where the datasets come from.
func sameData(a, b *Dataset) bool {
	x, errX := a.MarshalBinary()
	y, errY := b.MarshalBinary()
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

func TestTokensAreTheText(t *testing.T) {
	o := texts(t)
	d := prepare(t, o)
	c, err := Load(o.Corpus)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []struct {
		name  string
		docs  []Document
		ids   []int32
		bytes int
	}{{"training", c.Train, d.Train, d.TrainBytes}, {"held-out", c.HeldOut, d.HeldOut, d.HeldOutBytes}} {
		var want []string
		total := 0
		for _, doc := range part.docs {
			want = append(want, string(doc.Text))
			total += len(doc.Text)
		}
		if part.ids[0] != tokenizer.EndOfText || part.ids[len(part.ids)-1] != tokenizer.EndOfText {
			t.Errorf("the %s part does not begin and end with EndOfText", part.name)
		}
		var got []string
		at := 1
		for i := 1; i < len(part.ids); i++ {
			if part.ids[i] == tokenizer.EndOfText {
				got = append(got, string(d.Tokenizer.Decode(nil, part.ids[at:i])))
				at = i + 1
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("the %s part decodes to %d other documents, want %d", part.name, len(got), len(want))
		}
		if part.bytes != total {
			t.Errorf("the %s part: %d bytes, want %d", part.name, part.bytes, total)
		}
	}
	if got := d.HeldOutText(); len(got) != d.HeldOutBytes || !bytes.HasPrefix(got, c.HeldOut[0].Text) {
		t.Errorf("HeldOutText: %d bytes, want %d, the documents", len(got), d.HeldOutBytes)
	}
}

func TestPrepareUsesTheCache(t *testing.T) {
	o := texts(t)
	first := prepare(t, o)
	if first.Cached || first.Path == "" {
		t.Fatalf("first: cached %v, path %q; want new and stored", first.Cached, first.Path)
	}
	second := prepare(t, o)
	if !second.Cached || second.Path != first.Path || !sameData(first, second) {
		t.Errorf("second: cached %v at %q, same %v; want the first at %q",
			second.Cached, second.Path, sameData(first, second), first.Path)
	}
	opened, err := open(first.Path)
	if err != nil || !sameData(first, opened) {
		t.Errorf("open(%q): same data is false, error %v", first.Path, err)
	}

	other := o
	other.VocabSize = 401
	if d := prepare(t, other); d.Cached || d.Path == first.Path {
		t.Errorf("another vocabulary: taken from the cache")
	}
	path := filepath.Join(o.Corpus.Paths[0], "f00.go")
	if err := os.WriteFile(path, []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	if d := prepare(t, o); d.Cached {
		t.Errorf("another text: taken from the cache")
	}
}

func TestPrepareRepairsTheCache(t *testing.T) {
	o := texts(t)
	first := prepare(t, o)
	data, err := os.ReadFile(first.Path)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range [][]byte{nil, data[:100], append(bytes.Clone(data[:len(data)-1]), data[len(data)-1]^1)} {
		if err := os.WriteFile(first.Path, bad, 0o644); err != nil {
			t.Fatal(err)
		}
		var warnings []string
		o.Warn = func(text string) { warnings = append(warnings, text) }
		d := prepare(t, o)
		if len(warnings) != 1 || !strings.Contains(warnings[0], first.Path) || strings.Contains(warnings[0], "\n") {
			t.Errorf("damaged cache: warnings %q, want one line with the path", warnings)
		}
		if d.Cached || !sameData(d, first) {
			t.Errorf("damaged cache: cached %v, same data %v", d.Cached, sameData(d, first))
		}
		if repaired, err := os.ReadFile(first.Path); err != nil || !bytes.Equal(repaired, data) {
			t.Errorf("damaged cache: not repaired (%v)", err)
		}
	}
}

func TestPrepareWithoutCache(t *testing.T) {
	o := texts(t)
	want := prepare(t, o)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", "")
	t.Setenv("XDG_CACHE_HOME", "")
	for _, dir := range []string{"", filepath.Join(file, "below")} {
		var warnings []string
		o.CacheDir, o.Warn = dir, func(text string) { warnings = append(warnings, text) }
		d := prepare(t, o)
		if len(warnings) != 1 || !strings.Contains(warnings[0], "cache") || strings.Contains(warnings[0], "\n") {
			t.Errorf("cache %q: warnings %q, want one line", dir, warnings)
		}
		if d.Path != "" || d.Cached || !sameData(d, want) {
			t.Errorf("cache %q: path %q, cached %v, same data %v", dir, d.Path, d.Cached, sameData(d, want))
		}
	}
	o.Warn = nil
	prepare(t, o)
}

func TestDefaultCacheIsTheUsers(t *testing.T) {
	o := texts(t)
	home := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", home)
	o.CacheDir = ""
	user, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	if d := prepare(t, o); filepath.Dir(d.Path) != filepath.Join(user, "gorun", "train") {
		t.Errorf("cached at %q, want gorun/train in %q", d.Path, user)
	}
}

func TestManyPrepareAtOnce(t *testing.T) {
	o := texts(t)
	want := prepare(t, PrepareOptions{Corpus: o.Corpus, VocabSize: o.VocabSize, CacheDir: t.TempDir()})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if d, err := Prepare(o); err != nil || !sameData(d, want) {
				t.Errorf("error %v, or other data", err)
			}
		})
	}
	wg.Wait()
	entries, err := os.ReadDir(o.CacheDir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the cache has %d files (%v), want 1", len(entries), err)
	}
}

func TestCacheKeepsTheNewest(t *testing.T) {
	o := texts(t)
	old := time.Now().Add(-2 * time.Hour)
	if err := os.MkdirAll(o.CacheDir, 0o755); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"killed.tmp", "fresh.tmp", "a.tokens", "b.tokens", "c.tokens", "d.tokens", "mine.txt"} {
		path := filepath.Join(o.CacheDir, name)
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if name != "fresh.tmp" {
			at := old.Add(time.Duration(i) * time.Minute)
			if err := os.Chtimes(path, at, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	d := prepare(t, o)
	want := map[string]bool{filepath.Base(d.Path): true, "fresh.tmp": true, "b.tokens": true, "c.tokens": true, "d.tokens": true,
		"mine.txt": true}
	entries, err := os.ReadDir(o.CacheDir)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, e := range entries {
		got[e.Name()] = true
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the cache has %v, want %v", got, want)
	}
}

func TestPrepareRefuses(t *testing.T) {
	o := texts(t)
	for _, size := range []int{-1, 256, 65537} {
		o.VocabSize = size
		if _, err := Prepare(o); err == nil || !strings.Contains(err.Error(), "from 257 to 65536") {
			t.Errorf("vocabulary %d: error %v, want one with the range", size, err)
		}
	}
	o = PrepareOptions{Corpus: Options{Paths: []string{"/absent"}}}
	if _, err := Prepare(o); err == nil || !strings.Contains(err.Error(), "/absent: no such file") {
		t.Errorf("missing path: error %v", err)
	}
	if _, err := open("/absent"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("opening a missing file: error %v", err)
	}
}

func TestSampleIsSpread(t *testing.T) {
	var docs []Document
	for i := range 100 {
		docs = append(docs, Document{Text: bytes.Repeat([]byte{byte(i)}, 40<<10)})
	}
	blocks := sample(docs, 1<<20)
	total, seen := 0, map[byte]bool{}
	for _, b := range blocks {
		total += len(b)
		seen[b[0]] = true
	}
	if total < 1<<19 || total > 3<<19 || len(seen) < 60 {
		t.Errorf("%d bytes from %d of 100 documents, want about 1 MiB from most", total, len(seen))
	}
	if got := len(bytes.Join(sample(docs[:2], 1<<20), nil)); got != 80<<10 {
		t.Errorf("%d bytes of less than the limit, want all %d", got, 80<<10)
	}
}

func TestParseFindsEveryDamage(t *testing.T) {
	data, err := prepare(t, texts(t)).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(data); i += 1 + i/50 {
		bad := bytes.Clone(data)
		bad[i] ^= 1
		if _, err := Parse(bad); err == nil {
			t.Errorf("bit 0 of byte %d flipped: no error", i)
		}
		if _, err := Parse(data[:i]); err == nil {
			t.Errorf("cut to %d bytes: no error", i)
		}
	}
}

func FuzzParse(f *testing.F) {
	data, err := prepare(f, texts(f)).MarshalBinary()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[:len(data)-sha256.Size])
	huge := bytes.Clone(data[:headBytes])
	binary.LittleEndian.PutUint64(huge[len(magic)+16:], 1<<63)
	f.Add(huge)
	f.Fuzz(func(t *testing.T, body []byte) {
		sum := sha256.Sum256(body) // so that the fuzzer gets past the checksum
		sealed := append(bytes.Clone(body), sum[:]...)
		d, err := Parse(sealed)
		if err != nil {
			return
		}
		again, err := d.MarshalBinary()
		if err != nil || !bytes.Equal(again, sealed) {
			t.Errorf("what was parsed is written back differently (%v)", err)
		}
		if got := len(d.HeldOutText()); got != d.HeldOutBytes {
			t.Errorf("%d held-out bytes, HeldOutBytes %d", got, d.HeldOutBytes)
		}
	})
}

// TestPartAndRest holds that each token is in one part, of few documents and of many.
func TestPartAndRest(t *testing.T) {
	for _, documents := range []int{1, 3, 40} {
		d := &Dataset{Train: []int32{tokenizer.EndOfText}}
		for i := range documents {
			for range 40 / documents * 10 {
				d.Train = append(d.Train, int32(i))
			}
			d.Train = append(d.Train, tokenizer.EndOfText)
		}
		part, rest := d.Part(5), d.Rest(5)
		counts := map[int32]int{}
		for _, id := range part {
			counts[id]++
		}
		for _, id := range rest {
			counts[id]++
		}
		for i := range documents {
			if counts[int32(i)] != 40/documents*10 {
				t.Errorf("%d documents: token %d occurs %d times", documents, i, counts[int32(i)])
			}
		}
		if share := float64(len(part)) / float64(len(part)+len(rest)); share < 0.15 || share > 0.25 {
			t.Errorf("%d documents: a share of %v, want a fifth", documents, share)
		}
	}
}
