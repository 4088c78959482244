package deps

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSerialPackages holds the Makefile's list of packages that are not tried with the race detector because
// they start no goroutine and import nothing to share memory by.
func TestSerialPackages(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	serial := regexp.MustCompile("^(" + strings.Join(listed(t, string(text), "SERIAL"), "|") + ")$")
	checked := 0
	for _, dir := range packages(t) {
		if !serial.MatchString(dir) {
			continue
		}
		checked++
		files, err := filepath.Glob(filepath.Join(root(t), dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			if what := sharing(t, file); what != "" {
				t.Errorf("%s %s: take %s off SERIAL in the Makefile", file, what, dir)
			}
		}
	}
	if checked < 5 {
		t.Errorf("only %d packages were checked", checked)
	}
	if sharing(t, filepath.Join(root(t), "comm/async.go")) == "" {
		t.Error("comm/async.go starts goroutines, and was not found")
	}
}

// listed returns the words of a variable of the Makefile.
func listed(t *testing.T, text, name string) []string {
	t.Helper()
	_, rest, ok := strings.Cut(text, "\n"+name+" := ")
	if !ok {
		t.Fatalf("the Makefile has no line %s := …", name)
	}
	line := regexp.MustCompile(`^(.*\\\n)*.*`).FindString(rest)
	return strings.Fields(strings.ReplaceAll(line, "\\\n", " "))
}

// The Makefile's list of tests that are not tried with the race detector names tests that there are.
func TestArithmeticTests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	for _, dir := range packages(t) {
		files, err := filepath.Glob(filepath.Join(root(t), dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`(?m)^func Test(\w+)\(`).FindAllSubmatch(text, -1) {
				tests[string(m[1])] = true
			}
		}
	}
	for _, name := range listed(t, string(text), "ARITHMETIC") {
		if !tests[name] {
			t.Errorf("there is no Test%s: take it off ARITHMETIC in the Makefile", name)
		}
	}
}

// sharing says how a file may share memory between goroutines; "" if it does not.
func sharing(t *testing.T, file string) (how string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, imp := range f.Imports {
		if p := strings.Trim(imp.Path.Value, `"`); p == "sync" || p == "sync/atomic" {
			how = "imports " + p
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if _, ok := n.(*ast.GoStmt); ok {
			how = "starts a goroutine"
		}
		return true
	})
	return how
}
