package layout

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/internal/testenv"
)

// A command is one entry of a transcript: a line "name key=value …", "----", and
// the output up to the next empty line. Text before a command is kept as it is.
type command struct {
	name string
	args map[string]string
}

// arg returns an argument, or def if it was not given.
func (c command) arg(key, def string) string {
	if v, ok := c.args[key]; ok {
		return v
	}
	return def
}

// runTranscripts runs every command of the files that match a pattern in testdata
// and compares its output with the file, or rewrites the file under -rewrite.
func runTranscripts(t *testing.T, pattern string, run func(c command) string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcript matches testdata/%s (%v)", pattern, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		got, err := replay(string(text), run)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		testenv.Golden(t, file, got)
	}
}

// replay returns a transcript with the output of each command replaced.
func replay(text string, run func(c command) string) (string, error) {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	var out []string
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		out = append(out, line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		c, err := parseCommand(line)
		if err != nil {
			return "", fmt.Errorf("line %d: %w", i+1, err)
		}
		if i+1 < len(lines) && lines[i+1] == "----" {
			for i++; i+1 < len(lines) && lines[i+1] != ""; i++ {
			}
		}
		out = append(out, "----")
		out = append(out, strings.Split(strings.TrimRight(run(c), "\n"), "\n")...)
	}
	return strings.Join(out, "\n") + "\n", nil
}

// parseCommand reads "name key=value …"; a value reaches to the next " key=".
func parseCommand(line string) (command, error) {
	fields := strings.Fields(line)
	c := command{name: fields[0], args: map[string]string{}}
	key := ""
	for _, f := range fields[1:] {
		if k, v, ok := strings.Cut(f, "="); ok && strings.Trim(k, "abcdefghijklmnopqrstuvwxyz") == "" {
			key = k
			c.args[key] = v
			continue
		}
		if key == "" {
			return c, fmt.Errorf("%q is not key=value", f)
		}
		c.args[key] += " " + f
	}
	return c, nil
}

// parseAxes reads (data=2,model=4).
func parseAxes(s string) (Axes, error) {
	var axes []Axis
	for f := range strings.SplitSeq(strings.Trim(s, "()"), ",") {
		name, size, ok := strings.Cut(f, "=")
		var n int
		if _, err := fmt.Sscan(size, &n); !ok || err != nil {
			return Axes{}, fmt.Errorf("cannot read mesh %q", s)
		}
		axes = append(axes, Axis{name, n})
	}
	return NewAxes(axes...)
}

// parseShape reads [5,4] or [5 4].
func parseShape(s string) ([]int, error) {
	shape, ok := parseInts(strings.ReplaceAll(s, ",", " "))
	if !ok {
		return nil, fmt.Errorf("cannot read shape %q", s)
	}
	return shape, nil
}

// parseLayout reads a layout from a mesh, a shape and placements.
func parseLayout(mesh, shape, placements string) (Layout, error) {
	axes, err := parseAxes(mesh)
	if err != nil {
		return Layout{}, err
	}
	dims, err := parseShape(shape)
	if err != nil {
		return Layout{}, err
	}
	p, err := parsePlacements(placements)
	if err != nil {
		return Layout{}, err
	}
	return New(axes, dims, p...)
}
