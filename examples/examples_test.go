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

	"github.com/gorun-spmd/gorun/internal/testenv"
)

// Each example is copied into a module of its own, as a user does who begins with one, and is built and run there.
func TestExamplesPrintTheirOutput(t *testing.T) {
	dirs, err := filepath.Glob("[0-9][0-9]-*")
	if err != nil || len(dirs) < 7 {
		t.Fatalf("examples %v: %v", dirs, err)
	}
	module, bin := copiedOut(t, append(slices.Clone(dirs), "train", "recsys", "gpt2")) // the last needs a model to run
	run := func(t *testing.T, n int, dir string, args ...string) []string {
		cmd := exec.Command(filepath.Join(bin, "gorun"), append([]string{"-np", strconv.Itoa(n), filepath.Join(bin, dir)}, args...)...)
		cmd.Dir, cmd.Env = module, append(os.Environ(), "XDG_CACHE_HOME="+bin)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, stderr.String())
		}
		return strings.Split(strings.TrimSpace(string(out)), "\n")
	}
	for _, dir := range dirs {
		want := output(t, filepath.Join(dir, "main.go"))
		sizes := []int{1, 2, 4}
		if slices.Contains(divided, dir) {
			sizes = []int{1, 2, 3, 4, 7}
		}
		for _, n := range sizes {
			t.Run(dir+"/np="+strconv.Itoa(n), func(t *testing.T) {
				var args []string
				if dir == "15-gpt2" && n > 1 {
					args = []string{"-steps", "300"} // which are enough for its output
				}
				got := run(t, n, dir, args...)
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
	for dir, args := range map[string]string{"train": "-steps 1 -vocab 300 -width 16 -layers 1 -context 16 -sample 5 -plot= train",
		"recsys": "-rows 300 -steps 2 -batch 32"} {
		t.Run(dir, func(t *testing.T) { run(t, 2, dir, strings.Fields(args)...) })
	}
}

// A program that reads its flags with train.Parse says once what they are, and what is wrong with them.
func TestHelp(t *testing.T) {
	bin := t.TempDir()
	testenv.Build(t, bin, nil, "./15-gpt2", "../cmd/gorun")
	for flag, want := range map[string]string{"-h": "-checkpoint DIR\n",
		"-stops": "failed: 15-gpt2: flag provided but not defined: -stops; -h lists the flags"} {
		out, err := exec.Command(filepath.Join(bin, "gorun"), "-np", "2", filepath.Join(bin, "15-gpt2"), flag).CombinedOutput()
		if (err == nil) != (flag == "-h") || strings.Count(string(out), want) != 1 {
			t.Errorf("%s: %v\n%s", flag, err, out)
		}
	}
}

// divided are the examples that divide what they do in ways of their own.
var divided = []string{"12-heat", "13-sample-sort", "14-work-queue"}

// TestExamplesOverMPI runs some over an MPI library.
func TestExamplesOverMPI(t *testing.T) {
	const launcher = "mpirun.openmpi"
	testenv.NeedPrograms(t, launcher)
	bin := t.TempDir()
	testenv.Build(t, bin, nil, prefixed(divided)...)
	for _, dir := range divided {
		cmd := exec.Command(launcher, "--allow-run-as-root", "--oversubscribe", "-np", "3", filepath.Join(bin, dir))
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if got, want := strings.Split(strings.TrimSpace(string(out)), "\n"), output(t, filepath.Join(dir, "main.go")); err != nil ||
			!slices.Equal(got, want) {
			t.Errorf("%s: %v: got\n%s\nwant\n%s\n%s", dir, err, strings.Join(got, "\n"), strings.Join(want, "\n"), stderr.String())
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

// copiedOut copies examples into a module of its own. It builds them there, and gorun, into a folder.
func copiedOut(t *testing.T, dirs []string) (module, bin string) {
	t.Helper()
	testenv.DependsOn(t, append(prefixed(dirs), "../cmd/gorun")...)
	tree, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	module = t.TempDir()
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", dir, files, err)
		}
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				copyFile(t, file, filepath.Join(module, file), nil)
			}
		}
	}
	copyFile(t, "../go.sum", filepath.Join(module, "go.sum"), nil)
	copyFile(t, "../go.mod", filepath.Join(module, "go.mod"), func(text string) string {
		_, rest, _ := strings.Cut(text, "\n")
		return "module example.org/mine\n" + rest + "\nrequire github.com/gorun-spmd/gorun v0.0.0\nreplace github.com/gorun-spmd/gorun => " +
			tree + "\n"
	})
	bin = t.TempDir()
	packages := append(prefixed(dirs), "github.com/gorun-spmd/gorun/cmd/gorun")
	build := exec.Command("go", append([]string{"build", "-mod=mod", "-ldflags=-w", "-o", bin}, packages...)...)
	build.Dir, build.Env = module, append(os.Environ(), "GOFLAGS=", "GOPROXY=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return module, bin
}

// copyFile copies a text file, and makes the folder that it goes to.
func copyFile(t *testing.T, from, to string, change func(text string) string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		text = []byte(change(string(text)))
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, text, 0o666); err != nil {
		t.Fatal(err)
	}
}
