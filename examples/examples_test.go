// Package examples_test runs every numbered example as a user would and
// compares what it prints with the Output of its doc comment.
package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/internal/cachetest"
)

func TestExamplesPrintTheirOutput(t *testing.T) {
	dirs, err := filepath.Glob("[0-9][0-9]-*")
	if err != nil || len(dirs) < 7 {
		t.Fatalf("examples %v: %v", dirs, err)
	}
	cachetest.Uses(t, append(prefixed(dirs), "../cmd/gorun")...)
	bin := t.TempDir()
	build := exec.Command("go", append([]string{"build", "-o", bin, "../cmd/gorun"}, prefixed(dirs)...)...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, dir := range dirs {
		want := output(t, filepath.Join(dir, "main.go"))
		for _, n := range []int{1, 2, 4} {
			t.Run(dir+"/np="+strconv.Itoa(n), func(t *testing.T) {
				cmd := exec.Command(filepath.Join(bin, "gorun"), "-np", strconv.Itoa(n), filepath.Join(bin, dir))
				var stderr strings.Builder
				cmd.Stderr = &stderr
				out, err := cmd.Output()
				if err != nil {
					t.Fatalf("%v\n%s", err, stderr.String())
				}
				got := strings.Split(strings.TrimSpace(string(out)), "\n")
				if dir == "01-hello" { // every rank speaks, in any order
					slices.Sort(got)
					want = hello(n)
				}
				if !slices.Equal(got, want) {
					t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			})
		}
	}
}

func prefixed(dirs []string) []string {
	list := make([]string, len(dirs))
	for i, d := range dirs {
		list[i] = "./" + d
	}
	return list
}

// output returns the lines that a doc comment gives under Output, nil for the
// first example, whose lines depend on the number of ranks.
func output(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "// Output:\n//\n")
	if !ok {
		if strings.HasPrefix(file, "01-hello") {
			return nil
		}
		t.Fatalf("%s has no Output", file)
	}
	var lines []string
	for line := range strings.Lines(rest) {
		line, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "//\t")
		if !ok {
			break
		}
		lines = append(lines, line)
	}
	return lines
}

func hello(n int) []string {
	var lines []string
	for r := range n {
		lines = append(lines, "hello from rank "+strconv.Itoa(r)+" of "+strconv.Itoa(n))
	}
	return append(lines, "the ranks' numbers add up to "+strconv.Itoa(n*(n-1)/2))
}
