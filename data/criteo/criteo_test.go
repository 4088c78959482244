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

// A folder has train.txt, or days, which are read in their order and in equal parts.
func TestReadFolder(t *testing.T) {
	write := func(dir, name, text string) {
		t.Helper()
		if strings.HasSuffix(name, ".gz") {
			var packed bytes.Buffer
			z := gzip.NewWriter(&packed)
			z.Write([]byte(text))
			z.Close()
			text = packed.String()
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	day := func(counts ...string) (text string) {
		for _, c := range counts {
			text += line("0", c)
		}
		return text
	}
	days, kaggle, none := t.TempDir(), t.TempDir(), t.TempDir()
	write(days, "day_10", day("10", "11", "12", "13"))
	write(days, "day_2.gz", day("4")+"x\n")
	write(days, "day_0", day("0", "1", "2", "3"))
	write(days, "day_x", "x")
	write(days, "README", "x")
	write(kaggle, "train.txt", day("5", "6"))
	write(kaggle, "test.txt", "x")
	for _, c := range []struct {
		path string
		rows int
		want []float64
	}{
		{days, 0, []float64{0, 1, 2, 3, 4, 10, 11, 12, 13}}, {days, 3, []float64{0, 4, 10}}, {days, 1, []float64{0}},
		{days, 7, []float64{0, 1, 2, 4, 10, 11, 12}}, {days, 100, []float64{0, 1, 2, 3, 4, 10, 11, 12, 13}},
		{kaggle, 0, []float64{5, 6}}, {kaggle, 1, []float64{5}}, {filepath.Join(days, "day_2.gz"), 0, []float64{4}},
	} {
		d, bad, err := ReadFile(c.path, Options{Rows: c.rows})
		if err != nil {
			t.Fatal(err)
		}
		var got []float64
		for i := range d.Rows() {
			got = append(got, math.Round(math.Expm1(float64(d.Counts[i*Dense]))))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s, %d rows: %v, want %v", filepath.Base(c.path), c.rows, got, c.want)
		}
		if c.path == days && c.rows == 0 && (bad.Lines != 1 || bad.First[0] != "day_2.gz: line 2: 1 fields, want 40") {
			t.Errorf("%+v", bad)
		}
	}
	refuses := func(path, says string, o Options) {
		t.Helper()
		if _, _, err := ReadFile(path, o); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
	refuses(days, "day_2.gz: line 2: 1 fields, want 40", Options{Strict: true})
	refuses(none, "a folder without day_0 or train.txt", Options{})
	write(days, "day_2", day("4"))
	refuses(days, "day_2 and day_2.gz are one day", Options{})
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

// Each code has a row of its own, the most frequent first; where there are too few rows the
// others share them; a missing or an unknown code has row 0.
func TestVocabulary(t *testing.T) {
	var codes []int64 // of category 0; that of category 1 is always 7, and of the others none is there
	for code, often := range []int{3, 9, 1, 5, 1, 7} {
		for range often {
			codes = append(codes, int64(code))
		}
	}
	d := &Data{}
	for _, code := range append(codes, Missing) {
		line := make([]int64, Categorical)
		for f := range line {
			line[f] = Missing
		}
		line[0], line[1] = code, 7
		d.Codes = append(d.Codes, line...)
	}
	v := NewVocabulary(d, 7)
	if v.Rows[0] != 7 || v.Rows[1] != 2 || v.Rows[2] != 1 {
		t.Errorf("rows %v", v.Rows)
	}
	for code, want := range []int64{4, 1, 5, 3, 6, 2, 0, 0} {
		if got := v.Row(0, int64(code)); got != want {
			t.Errorf("code %d has row %d, want %d", code, got, want)
		}
	}
	if v.Row(0, Missing) != 0 || v.Row(1, 7) != 1 || v.Row(1, Missing) != 0 || v.Row(1, 8) != 0 || v.Row(2, 7) != 0 {
		t.Errorf("missing %d, %d; the one of category 1 %d, another %d; of category 2 %d", v.Row(0, Missing), v.Row(1, Missing), v.Row(1, 7),
			v.Row(1, 8), v.Row(2, 7))
	}
	few := NewVocabulary(d, 4)
	if few.Rows[0] != 4 || few.Row(0, 1) != 1 || few.Row(0, 5) != 2 || few.Row(0, 3) != 3 || few.Row(0, Missing) != 0 {
		t.Errorf("of at most 4 rows: %v", few)
	}
	used := map[int64]bool{}
	for code := range int64(100) {
		r := few.Row(0, code)
		if r < 1 || r > 3 {
			t.Fatalf("code %d has row %d of 1 to 3", code, r)
		}
		used[r] = true
	}
	if one := NewVocabulary(d, 1); one.Rows[0] != 1 || one.Row(0, 1) != 0 || len(used) != 3 {
		t.Errorf("of one row: %v; %d rows used", one, len(used))
	}
	other := NewVocabulary(&Data{Codes: d.Codes[:2*Categorical]}, 7)
	if v.Sum() != NewVocabulary(d, 8).Sum() || v.Sum() == few.Sum() || v.Sum() == other.Sum() {
		t.Error("the sum is not one for each vocabulary")
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
