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
	list := regexp.MustCompile(`(?m)^SERIAL := (.*)$`).FindSubmatch(text)
	if list == nil {
		t.Fatal("the Makefile has no line SERIAL := …")
	}
	serial := regexp.MustCompile("^(" + strings.Join(strings.Fields(string(list[1])), "|") + ")$")
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
