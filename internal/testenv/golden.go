package testenv

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// RewritesGolden reports whether -rewrite is given.
func RewritesGolden() bool { return *rewrite }

// Golden compares got with the file and reports the first line that differs. Under
// -rewrite it writes got to the file instead.
func Golden(t testing.TB, file, got string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	g, w := strings.SplitAfter(got, "\n"), strings.SplitAfter(string(want), "\n")
	for i := range max(len(g), len(w)) {
		var a, b string
		if i < len(g) {
			a = g[i]
		}
		if i < len(w) {
			b = w[i]
		}
		if a != b {
			t.Errorf("%s:%d:\n got %q\nwant %q\n(-rewrite accepts what is new)", file, i+1, a, b)
			return
		}
	}
}
