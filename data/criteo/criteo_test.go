package criteo

import (
	"bytes"
	"compress/gzip"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// line makes a line of the given fields, the rest being empty.
func line(label string, more ...string) string {
	f := make([]string, fields)
	f[0] = label
	copy(f[1:], more)
	return strings.Join(f, "\t") + "\n"
}

func TestRead(t *testing.T) {
	category := make([]string, Dense+1)
	category[0], category[1], category[Dense] = "7", "-2", "0a1B2c3d"
	text := line("1", category...) + line("0")
	d, bad, err := Read(strings.NewReader(strings.ReplaceAll(text, "\n", "\r\n")), Options{Strict: true})
	if err != nil || bad.Lines != 0 || !slices.Equal(d.Labels, []float32{1, 0}) {
		t.Fatalf("%+v %+v %v", d, bad, err)
	}
	if d.Counts[0] != float32(math.Log(8)) || d.Counts[1] != 0 || d.Counts[2] != 0 || d.Codes[0] != 0x0a1b2c3d || d.Codes[1] != Missing ||
		len(d.Codes) != 2*Categorical {
		t.Errorf("%+v", d)
	}
	if d, _, _ := Read(strings.NewReader(text), Options{Rows: 1}); d.Rows() != 1 {
		t.Errorf("%d rows, want 1", d.Rows())
	}
	if d := d.Cut(1, 2); d.Rows() != 1 || d.Labels[0] != 0 || len(d.Counts) != Dense {
		t.Errorf("cut: %+v", d)
	}
}

func TestMalformedLines(t *testing.T) {
	cat := make([]string, Dense+2)
	cat[Dense+1] = "xyz"
	lines := []string{line("1"), "1\t2\n", line("2"), line("0", "1.5"), line("0", cat...), "\n", strings.Repeat("a", 3*longest) + "\n",
		line("0"), strings.TrimSuffix(line("0"), "\n")}
	d, bad, err := Read(strings.NewReader(strings.Join(lines, "")), Options{})
	if err != nil || d.Rows() != 3 || bad.Lines != 6 {
		t.Fatalf("%d rows, %+v, %v", d.Rows(), bad, err)
	}
	want := []string{"line 2: 2 fields, want 40", `line 3: the label is "2", want 0 or 1`,
		`line 4: count 1 is "1.5", want an integer or nothing`,
		`line 5: category 2 is "xyz", want up to 8 hexadecimal digits or nothing`, "line 6: 1 fields, want 40"}
	if !slices.Equal(bad.First, want) || bad.Reasons["wrong number of fields"] != 2 || bad.Reasons["line too long"] != 1 {
		t.Errorf("%+v, want %q", bad, want)
	}
	if _, _, err := Read(strings.NewReader(strings.Join(lines, "")), Options{Strict: true}); err == nil || err.Error() != want[0] {
		t.Errorf("strict: %v", err)
	}
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	var text, packed bytes.Buffer
	if err := Generate(&text, 50, 3); err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(&packed)
	z.Write(text.Bytes())
	z.Close()
	for name, data := range map[string][]byte{"log": text.Bytes(), "log.gz": packed.Bytes()} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		d, _, err := ReadFile(path, Options{Strict: true})
		if err != nil || d.Rows() != 50 {
			t.Errorf("%s: %v, %v", name, d, err)
		}
	}
	if _, _, err := ReadFile(filepath.Join(dir, "none"), Options{}); err == nil {
		t.Error("no error for a file that is not there")
	}
	bad := filepath.Join(dir, "bad.gz")
	if err := os.WriteFile(bad, []byte("no gzip"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadFile(bad, Options{}); err == nil || !strings.Contains(err.Error(), "bad.gz") {
		t.Errorf("got %v", err)
	}
}

func TestGenerate(t *testing.T) {
	var a, b, c bytes.Buffer
	for seed, w := range map[uint64]*bytes.Buffer{1: &a, 2: &c} {
		if err := Generate(w, 2000, seed); err != nil {
			t.Fatal(err)
		}
	}
	if err := Generate(&b, 2000, 1); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) || bytes.Equal(a.Bytes(), c.Bytes()) {
		t.Error("a seed does not give one file")
	}
	d, _, err := Read(&a, Options{Strict: true})
	if err != nil || d.Rows() != 2000 {
		t.Fatal(err)
	}
	clicks, missing, often := 0, 0, map[int64]int{}
	for i, l := range d.Labels {
		clicks += int(l)
		often[d.Codes[i*Categorical+2]]++
	}
	for _, code := range d.Codes {
		if code == Missing {
			missing++
		}
	}
	if clicks < 200 || clicks > 1200 || missing < 500 || missing > 5000 || len(often) < 100 {
		t.Errorf("%d clicks, %d missing, %d values of category 3", clicks, missing, len(often))
	}
}

func TestVocabulary(t *testing.T) {
	d := &Data{Codes: make([]int64, 3*Categorical)}
	for i := range d.Codes {
		d.Codes[i] = int64(i)
	}
	d.Codes[0], d.Codes[1], d.Codes[1+Categorical], d.Codes[1+2*Categorical] = Missing, Missing, Missing, Missing
	v := NewVocabulary(d, 3)
	if v.Rows[0] != 3 || v.Rows[1] != 1 || v.Rows[2] != 3 {
		t.Errorf("rows %v", v.Rows)
	}
	for f, rows := range v.Rows {
		if v.Row(f, Missing) != 0 {
			t.Errorf("a missing value has row %d", v.Row(f, Missing))
		}
		for code := range int64(100) {
			if r := v.Row(f, code); r < 0 || r >= int64(rows) || r == 0 && rows > 1 {
				t.Fatalf("code %d has row %d of %d", code, r, rows)
			}
		}
	}
}

// FuzzRead holds that a log in Criteo's format, of any content, gives rows or is told of.
func FuzzRead(f *testing.F) {
	f.Add([]byte(line("1", "3", "-1")+"0\t1\n"), true)
	f.Add([]byte("\n\r\n\t"), false)
	f.Fuzz(func(t *testing.T, text []byte, strict bool) {
		d, bad, err := Read(bytes.NewReader(text), Options{Strict: strict})
		if err != nil {
			return
		}
		if len(d.Counts) != d.Rows()*Dense || len(d.Codes) != d.Rows()*Categorical || strict && bad.Lines > 0 {
			t.Fatalf("%d rows, %d counts, %d codes, %d malformed", d.Rows(), len(d.Counts), len(d.Codes), bad.Lines)
		}
	})
}
