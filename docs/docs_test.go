// Package docs_test holds that README.md and the pages here are true: code in
// them compiles, commands run, what is said to be printed is printed, names and
// links exist.
package docs_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/internal/testenv"
)

// pages are the files that are tested: all Markdown in the repository's root and here.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	here, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Glob("../*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(here, root...) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(text)
	}
	return all
}

// A block is fenced text of a page.
type block struct {
	place, language string
	lines           []string
}

func blocks(t *testing.T) []block {
	t.Helper()
	var all []block
	for name, text := range pages(t) {
		inside := false
		for i, line := range strings.Split(text, "\n") {
			language, fence := strings.CutPrefix(line, "```")
			switch {
			case fence && !inside:
				all = append(all, block{place: fmt.Sprintf("%s:%d", name, i+1), language: language})
				inside = true
			case fence:
				inside = false
			case inside:
				last := &all[len(all)-1]
				last.lines = append(last.lines, line)
			}
		}
		if inside {
			t.Errorf("%s: a fence is not closed", name)
		}
	}
	if len(all) < 8 {
		t.Fatalf("only %d blocks", len(all))
	}
	return all
}

// programs returns the programs that the pages have: each block of Go, and those of recipes.md together.
func programs(t *testing.T) []block {
	t.Helper()
	var all []block
	var joined *block
	for _, b := range blocks(t) {
		switch {
		case b.language != "go":
		case !strings.HasPrefix(b.place, recipes):
			all = append(all, b)
		case joined == nil:
			joined = &b
		default:
			joined.lines = append(append(joined.lines, b.line()), b.lines...)
		}
	}
	if joined == nil {
		t.Fatalf("%s has no code", recipes)
	}
	return append(all, *joined)
}

// line tells the compiler the place of what follows.
func (b block) line() string {
	file, line, _ := strings.Cut(b.place, ":")
	n, _ := strconv.Atoi(line) // of the fence; the body begins after it
	return fmt.Sprintf("//line %s:%d", file, n+1)
}

const module = "github.com/gorun-spmd/gorun"

// packages are the folders of the packages that pages name, by name.
func packages() map[string]string {
	return map[string]string{"comm": "comm", "commtest": "comm/commtest", "topology": "comm/topology",
		"window": "comm/window", "message": "comm/message", "tensor": "tensor", "dtensor": "dtensor", "layout": "dtensor/layout",
		"kernel": "tensor/kernel", "nn": "nn", "train": "train", "data": "data", "metrics": "metrics",
		"embedding": "embedding", "loss": "loss", "optim": "optim", "checkpoint": "checkpoint", "runtime": "runtime"}
}

// Each program compiles, with the imports that it needs.
func TestCodeCompiles(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay := map[string]string{} // files that are in this folder for the compiler only
	// This compiles, and links nothing.
	args := []string{"list", "-export", "-overlay", filepath.Join(dir, "overlay.json"), "-f", ""}
	for _, b := range programs(t) {
		name := fmt.Sprint("_block", len(overlay))
		overlay[filepath.Join(here, name, "main.go")] = filepath.Join(dir, name+".go")
		if err := os.WriteFile(filepath.Join(dir, name+".go"), []byte(program(b)), 0o666); err != nil {
			t.Fatal(err)
		}
		args = append(args, "./"+name)
	}
	text, err := json.Marshal(map[string]any{"Replace": overlay})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o666)
	}
	if err != nil || len(overlay) < 4 {
		t.Fatalf("%d blocks, %v", len(overlay), err)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// program makes a whole program of a block, whose errors are told at its place.
func program(b block) string {
	body := strings.Join(b.lines, "\n")
	if strings.HasPrefix(body, "package main\n") {
		return body
	}
	text := "package main\n\n"
	for _, name := range slices.Sorted(maps.Keys(packages())) {
		if regexp.MustCompile(`\b` + name + `\.[A-Z]`).MatchString(body) {
			text += fmt.Sprintf("import %q\n", module+"/"+packages()[name])
		}
	}
	for _, name := range []string{"context", "fmt", "iter", "math"} {
		if strings.Contains(body, name+".") {
			text += fmt.Sprintf("import %q\n", name)
		}
	}
	text += "\n" + b.line() + "\n" + body + "\n"
	if !strings.Contains(body, "func main()") {
		text += emptyMain
	}
	return text
}

const emptyMain = "\nfunc main() {}\n"

// shorter are the flags by which the test runs an example's job in a few seconds.
var shorter = []struct{ command, flags string }{
	{"./examples/train -checkpoint /tmp/run -every 50", " -steps 2 -sample 0 -plot '' -data comm"},
	{"./examples/train -checkpoint /tmp/run -resume", " -steps 4 -sample 0 -plot '' -data comm"},
	{"./examples/recsys -checkpoint /tmp/clicks -every 50", " -steps 4 -rows 3000"},
	{"./examples/recsys -steps 4", " -rows 3000"},
	{"--elastic restart ./examples/train", " -steps 4 -sample 0 -plot '' -data comm"},
	{"--elastic shrink --min-np 2 ./examples/recsys", " -steps 4 -rows 3000"},
}

// command returns what is run for a line of a page. Programs and temporary files lie
// in folders of this test; long jobs run for a few steps; make only prints its commands.
func command(line, bin, temp string) string {
	for _, job := range shorter {
		if strings.HasSuffix(line, job.command) {
			line += job.flags
		}
	}
	if target, ok := strings.CutPrefix(line, "make "); ok {
		line = "make -n " + target
	}
	return strings.NewReplacer("bin/", bin+"/", "/tmp/", temp+"/").Replace(line)
}

func TestCommandsRun(t *testing.T) {
	testenv.DependsOn(t, "../examples/...")
	bin, temp := t.TempDir(), t.TempDir()
	run := func(place, line string) []string {
		cmd := exec.Command("bash", "-c", command(line, bin, temp))
		cmd.Dir = ".."
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%s: %s: %v\n%s", place, line, err, stderr.String())
		}
		return strings.Split(strings.TrimSpace(string(out)), "\n")
	}
	testenv.Build(t, bin, nil, "../cmd/gorun")
	for _, b := range blocks(t) {
		switch b.language {
		case "sh":
			for _, line := range b.lines {
				line, _, _ = strings.Cut(line, "#")
				run(b.place, strings.TrimSpace(line))
			}
		case "console":
			for i := 0; i < len(b.lines); {
				line, ok := strings.CutPrefix(b.lines[i], "$ ")
				if !ok {
					t.Fatalf("%s: %q is neither a command nor printed by one", b.place, b.lines[i])
				}
				var want []string
				for i++; i < len(b.lines) && !strings.HasPrefix(b.lines[i], "$ "); i++ {
					want = append(want, b.lines[i])
				}
				got := run(b.place, line)
				slices.Sort(got) // ranks speak in any order
				slices.Sort(want)
				if len(want) > 0 && !slices.Equal(got, want) {
					t.Errorf("%s: %s: got\n%s\nwant\n%s", b.place, line, strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			}
		case "go":
		default:
			t.Errorf("%s: a block of %q is not tested; use sh, console or go", b.place, b.language)
		}
	}
}

// Each whole program that says what it prints prints it, on any number of ranks.
func TestProgramsPrintTheirOutput(t *testing.T) {
	bin := t.TempDir()
	testenv.Build(t, bin, nil, "../cmd/gorun")
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, b := range blocks(t) {
		body, output, ok := strings.Cut(strings.Join(b.lines, "\n"), "// Output:\n//\n")
		if !ok {
			continue
		}
		ran++
		dir := t.TempDir()
		source, overlay := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json")
		text, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(here, "_program", "main.go"): source}})
		if err == nil {
			err = errors.Join(os.WriteFile(source, []byte(body), 0o666), os.WriteFile(overlay, text, 0o666))
		}
		if err != nil {
			t.Fatal(err)
		}
		build := exec.Command("go", "build", "-overlay", overlay, "-o", filepath.Join(dir, "program"), "./_program")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", b.place, err, out)
		}
		var want []string
		for line := range strings.Lines(output) {
			want = append(want, strings.TrimSpace(strings.TrimPrefix(line, "//")))
		}
		for _, np := range []string{"1", "2", "3", "4"} {
			out, err := exec.Command(filepath.Join(bin, "gorun"), "-np", np, filepath.Join(dir, "program")).Output()
			if got := strings.Split(strings.TrimSpace(string(out)), "\n"); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s, -np %s: %v: got\n%s\nwant\n%s", b.place, np, err, out, strings.Join(want, "\n"))
			}
		}
	}
	if ran == 0 {
		t.Error("no program says what it prints")
	}
}

// declared returns the names that the Go files of a pattern declare: "Name",
// "Type.Method", "Type.Field".
func declared(t *testing.T, pattern string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	files, err := filepath.Glob(filepath.Join("..", pattern))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Recv != nil {
					of := d.Recv.List[0].Type
					if star, ok := of.(*ast.StarExpr); ok {
						of = star.X
					}
					if generic, ok := of.(*ast.IndexExpr); ok {
						of = generic.X
					}
					if id, ok := of.(*ast.Ident); ok {
						name = id.Name + "." + name
					}
				}
				names[name] = true
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						names[s.Name.Name] = true
						if of, ok := s.Type.(*ast.StructType); ok {
							for _, field := range of.Fields.List {
								for _, n := range field.Names {
									names[s.Name.Name+"."+n.Name] = true
								}
							}
						}
					case *ast.ValueSpec:
						for _, n := range s.Names {
							names[n.Name] = true
						}
					}
				}
			}
		}
	}
	return names
}

func TestNamesExist(t *testing.T) {
	known := map[string]map[string]bool{}
	for name, dir := range packages() {
		known[name] = declared(t, dir+"/*.go")
	}
	for _, job := range shorter {
		if !strings.Contains(pages(t)["guide.md"], job.command) {
			t.Errorf("guide.md no longer has %q", job.command)
		}
	}
	for page, text := range pages(t) {
		if page == "../CHANGELOG.md" {
			continue // it names what is gone, too
		}
		found := 0
		for _, m := range regexp.MustCompile("`(\\w+)\\.([A-Z]\\w*(?:\\.[A-Z]\\w*)?)").FindAllStringSubmatch(text, -1) {
			if names, ok := known[m[1]]; ok {
				if found++; !names[m[2]] {
					t.Errorf("%s: there is no %s.%s", page, m[1], m[2])
				}
			}
		}
		if page == "guide.md" && found < 30 {
			t.Errorf("%s names only %d things", page, found)
		}
	}
}

func TestLinksLead(t *testing.T) {
	fenced := regexp.MustCompile("(?ms)^```.*?^```$")
	for page, text := range pages(t) {
		text = fenced.ReplaceAllString(text, "")
		for _, m := range regexp.MustCompile(`\]\(([^)#]+)`).FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}

// Each `file:symbol`, and each path, that design.md names is there.
func TestPlacesExist(t *testing.T) {
	page := pages(t)["design.md"]
	symbols := regexp.MustCompile("`([a-z/_]+\\.go):([\\w.]+)`").FindAllStringSubmatch(page, -1)
	for _, m := range symbols {
		if !declared(t, m[1])[m[2]] {
			t.Errorf("design.md: there is no %s in %s", m[2], m[1])
		}
	}
	paths := regexp.MustCompile("`([a-z]+(?:/[a-z_]+)+(?:\\.[a-z]+)?)`").FindAllStringSubmatch(page, -1)
	for _, m := range paths {
		if _, err := os.Stat(filepath.Join("..", m[1])); err != nil {
			t.Errorf("design.md: %v", err)
		}
	}
	if len(symbols) < 15 || len(paths) < 20 {
		t.Errorf("design.md names only %d symbols and %d paths", len(symbols), len(paths))
	}
}

// environment.md names each variable that the programs read, and no other.
func TestEnvironmentIsWhole(t *testing.T) {
	page, err := os.ReadFile("environment.md")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(GORUN_[A-Z_]+)`").FindAllSubmatch(page, -1) {
		said[string(m[1])] = true
	}
	read := map[string]bool{"GORUN_TEST_GPU": true} // which only tests read
	literal := regexp.MustCompile(`"(GORUN_[A-Z_]+)[="]`)
	err = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range literal.FindAllSubmatch(text, -1) {
			read[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range read {
		if !said[name] {
			t.Errorf("environment.md does not name %s", name)
		}
	}
	for name := range said {
		if !read[name] {
			t.Errorf("environment.md names %s, which nothing reads", name)
		}
	}
	if len(said) < 20 {
		t.Errorf("environment.md names only %d variables", len(said))
	}
}
