package hosts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/internal/testenv"
)

// render returns the whole result of Parse as text.
func render(list []Host, warnings []Warning, err error) string {
	var b strings.Builder
	for _, h := range list {
		fmt.Fprintf(&b, "  %v\n", h)
	}
	for _, w := range warnings {
		fmt.Fprintf(&b, "  warning %v\n", w)
	}
	if err != nil {
		fmt.Fprintf(&b, "  error %v\n", err)
	}
	return b.String()
}

// TestCorpus parses every file of the corpora, good and bad, in its own grammar and in the one
// that Detect finds. The files were made to find out what Open MPI and hydra do.
func TestCorpus(t *testing.T) {
	for _, c := range []struct {
		folder string
		format Format
		files  int
	}{{"openmpi", OpenMPI, 37}, {"hydra", MPICH, 20}} {
		names, err := filepath.Glob(filepath.Join("testdata", c.folder, "*"))
		if err != nil || len(names) != c.files {
			t.Fatalf("%s: %d files, %v; want %d", c.folder, len(names), err, c.files)
		}
		var got strings.Builder
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			base := filepath.Base(name)
			fmt.Fprintf(&got, "%s as %v\n%s", base, c.format, render(Parse(base, text, c.format)))
			if f := Detect(text); f != c.format {
				fmt.Fprintf(&got, "%s detected as %v\n%s", base, f, render(Parse(base, text, Auto)))
			}
		}
		testenv.Golden(t, filepath.Join("testdata", c.folder+".golden"), got.String())
	}
}

// FuzzParse parses random text in every grammar. It must not panic. Errors must have a position
// inside the text. The hosts must be within the limits, and if they can be printed they must
// read back the same.
func FuzzParse(f *testing.F) {
	names, _ := filepath.Glob("testdata/*/*")
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil {
			f.Add(text)
		}
	}
	for _, s := range []string{"n[1-4,7]", "n[001-003]x[1-2],m", "h 4 all.q UNDEFINED\n", "a 2 b 3", "a[1-65536]", "a[1-99][1-99][1-99]"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		lines := strings.Count(string(text), "\n") + 1
		for format := Auto; format <= Slurm; format++ {
			list, warnings, err := Parse("f", text, format)
			var e *Error
			switch {
			case err != nil && !errors.As(err, &e):
				t.Fatalf("%v: %v is no *Error", format, err)
			case err != nil && (e.Line < 1 || e.Line > lines || e.Column < 1 || e.Column > len(text)+1 || len(e.What) > 400):
				t.Fatalf("%v: %v is outside the %d lines", format, err, lines)
			case err != nil && list != nil, err == nil && len(list) == 0, len(list) > maxHosts:
				t.Fatalf("%v: %d hosts with error %v", format, len(list), err)
			}
			for _, w := range warnings {
				if w.Line < 1 || w.Line > lines || w.Column < 1 {
					t.Fatalf("%v: warning %v outside the text", format, w)
				}
			}
			for _, h := range list {
				if h.Name == "" || len(h.Name) > maxName+20 || h.Slots < 0 || h.Slots > maxSlots || h.MaxSlots > 0 && h.MaxSlots < h.Slots {
					t.Fatalf("%v: host %v", format, h)
				}
			}
			if len(list) > 0 && len(list) < 100 && Slots(list, 1) < 10000 {
				roundTrip(t, format, list)
			}
		}
	})
}

// roundTrip prints list in format and reads it back.
func roundTrip(t *testing.T, format Format, list []Host) {
	t.Helper()
	if format != OpenMPI && format != MPICH && format != PBS {
		return
	}
	text, err := Print(format, list)
	if err != nil {
		t.Fatalf("%v: cannot print what was read: %v", format, err)
	}
	again, _, err := Parse("again", []byte(text), format)
	if err != nil || fmt.Sprint(again) != fmt.Sprint(list) {
		t.Fatalf("%v: %v printed as %q reads as %v, %v", format, list, text, again, err)
	}
}

// FuzzLists gives random text to the readers of single values.
func FuzzLists(f *testing.F) {
	for _, s := range []string{"n[01-04,7],m", "2(x3),1", "a:2,b:2", "[", "]", "a[1-2", "1(x", "a,,b", "n[9999999999999999999]", "n[1-9][1-9]",
		"1(x65536),1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		check := func(what string, n int, err error) {
			var e *Error
			if err != nil && (!errors.As(err, &e) || e.Column < 1 || e.Column > len(s)+1) {
				t.Fatalf("%s %q: error %v", what, s, err)
			}
			if n > maxHosts || err == nil && n == 0 {
				t.Fatalf("%s %q: %d values", what, s, n)
			}
		}
		names, err := Position{"node list", 1, 1}.expand(s)
		check("node list", len(names), err)
		counts, err := Position{"counts", 1, 1}.expandCounts(s)
		check("counts", len(counts), err)
		list, err := ParseList(s)
		check("--host", len(list), err)
	})
}
