package corpus

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// tree writes files, name to content, below a new directory and returns it.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func load(t *testing.T, o Options) *Corpus {
	t.Helper()
	c, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func names(docs []Document) []string {
	var all []string
	for _, d := range docs {
		all = append(all, d.Name)
	}
	return all
}

func joined(docs []Document) string {
	var all strings.Builder
	for _, d := range docs {
		all.Write(d.Text)
	}
	return all.String()
}

// many returns n files of text, a.txt to the n-th, with sizes around 100 bytes.
func many(n int) map[string]string {
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf("d%d/f%03d.txt", i%3, i)] = strings.Repeat(fmt.Sprintf("line %d\n", i), 8+i%9)
	}
	return files
}

func TestDefaultIsTheStandardLibrary(t *testing.T) {
	c := load(t, Options{MaxBytes: 4 << 20})
	if c.TrainBytes()+c.HeldOutBytes() > 4<<20 || c.TrainBytes() < 3<<20 {
		t.Errorf("%d bytes to train and %d held out, want just under 4 MiB together", c.TrainBytes(), c.HeldOutBytes())
	}
	if share := float64(c.HeldOutBytes()) / (4 << 20); share < 0.04 || share > 0.05 {
		t.Errorf("%.3f of the text is held out, want about 0.05", share)
	}
	mark := regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	for _, d := range append(c.Train, c.HeldOut...) {
		if !strings.HasSuffix(d.Name, ".go") || strings.HasPrefix(d.Name, "cmd/") || strings.Contains(d.Name, "testdata/") {
			t.Errorf("read %s", d.Name)
		}
		header, _, _ := bytes.Cut(d.Text, []byte("\npackage "))
		if mark.Match(header) {
			t.Errorf("read %s, which is generated", d.Name)
		}
	}
}

func TestSplitIsByWholeFiles(t *testing.T) {
	files := many(200)
	c := load(t, Options{Paths: []string{tree(t, files)}})
	train, heldOut := names(c.Train), names(c.HeldOut)
	if !slices.IsSorted(train) || !slices.IsSorted(heldOut) {
		t.Errorf("the documents are not in the order of their names")
	}
	if len(train)+len(heldOut) != len(files) || len(heldOut) < 5 || len(heldOut) > 15 {
		t.Errorf("%d files to train and %d held out of %d, want about 10 held out", len(train), len(heldOut), len(files))
	}
	for _, d := range append(c.Train, c.HeldOut...) {
		if string(d.Text) != files[d.Name] {
			t.Errorf("%s: text differs from the file", d.Name)
		}
	}
	elsewhere := load(t, Options{Paths: []string{tree(t, files)}})
	if !reflect.DeepEqual(names(elsewhere.HeldOut), heldOut) {
		t.Errorf("the same files in another directory: held out %v, before %v", names(elsewhere.HeldOut), heldOut)
	}
}

func TestHeldOutBytesBounds(t *testing.T) {
	root := tree(t, many(200))
	c := load(t, Options{Paths: []string{root}, HeldOutBytes: 300})
	if n := c.HeldOutBytes(); n == 0 || n > 300 {
		t.Errorf("%d bytes held out, want 1 to 300", n)
	}
}

func TestMaxBytesChoosesWholeFiles(t *testing.T) {
	files := many(100)
	c := load(t, Options{Paths: []string{tree(t, files)}, MaxBytes: 2000})
	if n := c.TrainBytes() + c.HeldOutBytes(); n > 2000 || n < 1900 {
		t.Errorf("%d bytes kept, want just under 2000", n)
	}
	cut := 0
	for _, d := range append(c.Train, c.HeldOut...) {
		if string(d.Text) != files[d.Name] {
			cut++
		}
	}
	if cut > 1 {
		t.Errorf("%d files were cut, want at most the last one chosen", cut)
	}
	if last := names(c.Train)[len(c.Train)-1]; !strings.HasPrefix(last, "d2/") {
		t.Errorf("the files kept end with %s: they were not chosen evenly", last)
	}
}

func TestMaxBytesPassesOverLargeBinaries(t *testing.T) {
	root := tree(t, map[string]string{"a.txt": "some text\n", "b.txt": "more text\n"})
	for i := range 20 { // whatever their ranks, some come before the text
		name := filepath.Join(root, fmt.Sprintf("b%d", i))
		if err := os.WriteFile(name, make([]byte, 5000), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := load(t, Options{Paths: []string{root}, MaxBytes: 1000})
	if got := c.TrainBytes() + c.HeldOutBytes(); got != 20 {
		t.Errorf("%d bytes of text, want the 20 beside the binaries", got)
	}
}

func TestOneFileIsSplitByPosition(t *testing.T) {
	text := strings.Repeat("a line of text\n", 100)
	path := filepath.Join(tree(t, map[string]string{"one.txt": text}), "one.txt")
	c := load(t, Options{Paths: []string{path}})
	if joined(c.Train)+joined(c.HeldOut) != text {
		t.Errorf("the parts are not the file")
	}
	if n := c.HeldOutBytes(); n < 45 || n > 75 {
		t.Errorf("%d of 1500 bytes held out, want about 75", n)
	}
	if !strings.HasSuffix(joined(c.Train), "\n") {
		t.Errorf("split within a line though there are lines")
	}

	c = load(t, Options{Paths: []string{path}, MaxBytes: 100})
	if got := joined(c.Train) + joined(c.HeldOut); got != text[:90] {
		t.Errorf("limited to 100 bytes: %q, want the six whole lines", got)
	}
}

func TestFewFiles(t *testing.T) {
	for n := 1; n <= 25; n++ {
		files := many(n)
		c := load(t, Options{Paths: []string{tree(t, files)}})
		total := 0
		for _, text := range files {
			total += len(text)
		}
		if got := c.TrainBytes() + c.HeldOutBytes(); got != total {
			t.Errorf("%d files: %d bytes in both parts, want %d", n, got, total)
		}
	}
	c := load(t, Options{Paths: []string{tree(t, map[string]string{"two": "ab"})}})
	if joined(c.Train) != "a" || joined(c.HeldOut) != "b" {
		t.Errorf("two bytes: train %q, held out %q", joined(c.Train), joined(c.HeldOut))
	}
}

// TestSplitProperties tries many shapes of corpora.
func TestSplitProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		files := make([]file, 1+rng.IntN(30))
		all, total := map[string]string{}, 0
		for i := range files {
			n := 1 + int(math.Exp(rng.Float64()*7))
			text := bytes.Repeat([]byte(fmt.Sprintf("%d\n", i)), n)[:n]
			files[i] = file{order: i, name: fmt.Sprint(rng.Uint32()), text: text}
			all[files[i].name] = string(text)
			total += n
		}
		limit := 1 + rng.IntN(2*total)
		train, heldOut := split(files, limit)
		if len(train) == 0 && total > 1 || len(heldOut) == 0 {
			t.Fatalf("%d files, %d bytes: %d documents to train, %d held out", len(files), total, len(train), len(heldOut))
		}
		if n := size(heldOut); n > max(1, min(limit, total/heldOutShare)) {
			t.Fatalf("%d of %d bytes held out, limit %d", n, total, limit)
		}
		for _, d := range append(train, heldOut...) {
			rest, ok := strings.CutPrefix(all[d.Name], string(d.Text))
			if !ok || len(d.Text) == 0 {
				t.Fatalf("%s: %q, or twice, or empty; left of the file is %q", d.Name, d.Text, all[d.Name])
			}
			all[d.Name] = rest
		}
		if left := strings.Join(slices.Collect(maps.Values(all)), ""); left != "" {
			t.Fatalf("%q is in neither part", left)
		}
	}
}

func TestSkipsWhatIsNotText(t *testing.T) {
	root := tree(t, map[string]string{
		"a.txt":        strings.Repeat("text ", 10),
		"latin1.txt":   strings.Repeat("caf\xe9 au lait ", 9),
		"nul.bin":      "\x7fELF\x00\x00",
		"noise.bin":    "\xff\xfe\xfd\xfc abc",
		"empty.txt":    "",
		".git/config":  "hidden",
		".hidden":      "hidden",
		"sub/.x/a.txt": "hidden",
	})
	if err := os.Symlink(filepath.Join(root, "a.txt"), filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	c := load(t, Options{Paths: []string{root}})
	all := append(names(c.Train), names(c.HeldOut)...)
	slices.Sort(all)
	if want := []string{"a.txt", "latin1.txt", "latin1.txt"}; !slices.Equal(all, want) {
		t.Errorf("read %v, want %v", all, want)
	}
	if c.Skipped != 3 {
		t.Errorf("%d files skipped, want 3", c.Skipped)
	}
}

func TestPathsInOrderAndOnce(t *testing.T) {
	a, b := tree(t, many(30)), tree(t, map[string]string{"x.txt": strings.Repeat("x\n", 400), "y.txt": strings.Repeat("y\n", 400)})
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(b, link); err != nil {
		t.Fatal(err)
	}
	y := filepath.Join(b, "y.txt")
	c := load(t, Options{Paths: []string{y, link, a, b}})
	if got := names(c.Train)[:2]; !slices.Equal(got, []string{"y.txt", "x.txt"}) {
		t.Errorf("the corpus begins with %v, want y.txt, which was named first, then x.txt", got)
	}
	if n := len(c.Train) + len(c.HeldOut); n != 32 {
		t.Errorf("%d documents, want 32: each file once", n)
	}
	if c.Source != strings.Join([]string{y, link, a, b}, " ") {
		t.Errorf("source %q", c.Source)
	}
}
