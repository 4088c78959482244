// Package deps holds the policies of the whole tree as tests: who may import
// whom, and the house rules that a grep can check.
package deps

import (
	"go/build"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/gorun-spmd/gorun"

// policy lists, for each package, the packages of this module that it may
// import: those after the <, and whatever these may import in turn. A pattern
// that ends in /... stands for a folder and all below it; the longest pattern
// that matches a package is its rule.
//
// It is a statement of how the project is built, not a record of how it
// happens to be: do not change a line to make a build pass.
const policy = `
	internal/activation <
	internal/dtype     <
	internal/stack     <
	internal/fault     < internal/stack
	internal/invariant <
	internal/simd      < internal/activation internal/dtype
	internal/gemm      < internal/simd
	internal/philox    <
	internal/mem       < internal/fault internal/invariant
	internal/control   < internal/invariant
	internal/job       <
	internal/needtest  <
	internal/cachetest <
	internal/goldentest <

	comm          < internal/dtype internal/mem internal/invariant internal/simd
	comm/mem      < comm
	comm/shm      < comm internal/control
	comm/mpi      < comm
	comm/gompi    < comm comm/mpi/blocking
	comm/empi     < comm comm/mpi/blocking
	comm/mpi/blocking < comm
	comm/mpi/blocking/blockingtest < comm/commtest comm/mpi/blocking internal/needtest
	comm/commtest < comm comm/mem

	tensor      < internal/dtype internal/fault internal/mem internal/simd internal/gemm internal/philox
	tensor/cuda < tensor
	tensor/cuda/cudatest < internal/needtest

	dtensor/layout <
	dtensor        < tensor comm dtensor/layout
	dtensor/visualize < dtensor
	nn             < dtensor
	embedding      < dtensor
	loss           < dtensor
	optim          < dtensor
	checkpoint     < dtensor checkpoint/safetensors
	checkpoint/safetensors < internal/dtype

	runtime    < comm/mem comm/shm comm/mpi comm/gompi comm/empi tensor/cuda internal/job internal/fault
	launcher   < launcher/hosts internal/job internal/control
	launcher/hosts <
	cmd/gorun  < launcher

	examples/...         < runtime nn embedding loss optim checkpoint dtensor/visualize examples/internal/ranks
	examples/internal/ranks < comm/mem
	examples/internal/program < checkpoint internal/cachetest
	bench/...            < runtime nn embedding loss optim checkpoint internal/gemm internal/simd
	bench/internal/measuretest < bench/internal/measure comm/commtest
	internal/conformance/... < runtime nn embedding loss optim
	internal/meshtest    < dtensor comm/commtest tensor/cuda tensor/cuda/cudatest
	internal/cluster     <
	internal/deps        <
	docs                 <
`

type rule struct {
	pattern string
	allowed []string
}

func parse(t *testing.T, policy string) []rule {
	t.Helper()
	var rules []rule
	for line := range strings.Lines(policy) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		left, right, ok := strings.Cut(line, "<")
		if !ok {
			t.Fatalf("policy line without <: %q", line)
		}
		rules = append(rules, rule{strings.TrimSpace(left), strings.Fields(right)})
	}
	return rules
}

// find returns the most specific rule for pkg.
func find(rules []rule, pkg string) (rule, bool) {
	var best rule
	for _, r := range rules {
		dir, tree := strings.CutSuffix(r.pattern, "/...")
		if (pkg == dir || tree && strings.HasPrefix(pkg, dir+"/")) && len(r.pattern) > len(best.pattern) {
			best = r
		}
	}
	return best, best.pattern != ""
}

// reach returns what the rule allows, followed through the rules of what it allows.
func reach(rules []rule, r rule) map[string]bool {
	seen := map[string]bool{}
	var walk func(r rule)
	walk = func(r rule) {
		for _, p := range r.allowed {
			if !seen[p] {
				seen[p] = true
				if next, ok := find(rules, p); ok {
					walk(next)
				}
			}
		}
	}
	walk(r)
	return seen
}

// root is the top of the module, two folders up.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// packages returns the folders of the module that hold Go files, relative to
// its root. Nested modules (code generators) are left out.
func packages(t *testing.T) []string {
	t.Helper()
	top := root(t)
	var dirs []string
	err := filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(top, p)
		if d.IsDir() {
			name := d.Name()
			if rel != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin") {
				return filepath.SkipDir
			}
			if rel != "." {
				if _, err := os.Stat(filepath.Join(p, "go.mod")); err == nil {
					return filepath.SkipDir
				}
			}
			return nil
		}
		if strings.HasSuffix(p, ".go") && !slices.Contains(dirs, filepath.ToSlash(filepath.Dir(rel))) {
			dirs = append(dirs, filepath.ToSlash(filepath.Dir(rel)))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

// TestImports checks every import of every package, on any platform and under
// any tag; tests may also use commtest.
func TestImports(t *testing.T) {
	rules := parse(t, policy)
	ctx := build.Default
	ctx.UseAllFiles = true
	checked := 0
	for _, dir := range packages(t) {
		if dir == "." {
			continue
		}
		r, ok := find(rules, dir)
		if !ok {
			t.Errorf("%s: no line of the policy speaks of this package; decide where it belongs", dir)
			continue
		}
		allowed := reach(rules, r)
		// UseAllFiles mixes package names (main beside tests); the imports are read all the same.
		p, err := ctx.ImportDir(filepath.Join(root(t), dir), build.IgnoreVendor)
		if p == nil || p.Name == "" && len(p.TestGoFiles)+len(p.XTestGoFiles) == 0 {
			t.Errorf("%s: %v", dir, err)
			continue
		}
		check := func(imports []string, test bool) {
			for _, imp := range imports {
				rel, ours := strings.CutPrefix(imp, module+"/")
				if !ours || strings.HasPrefix(rel, dir+"/") || inside(dir, rel) {
					continue
				}
				checked++
				if !allowed[rel] && !(test && (strings.HasSuffix(rel, "test") || rel == "comm/mem" || rel == "launcher" || rel == dir)) {
					t.Errorf("%s imports %s: the policy allows only %v", dir, rel, r.allowed)
				}
			}
		}
		check(p.Imports, false)
		check(p.TestImports, true)
		check(p.XTestImports, true)
	}
	if checked < 10 {
		t.Errorf("only %d imports were checked: the walk does not see the tree", checked)
	}
}

// inside reports whether both packages belong to one program under examples or
// bench, or the second is what all those programs share.
func inside(dir, imp string) bool {
	for _, top := range []string{"examples", "bench"} {
		a, ok := strings.CutPrefix(dir, top+"/")
		b, ok2 := strings.CutPrefix(imp, top+"/")
		if ok && ok2 {
			a, _, _ = strings.Cut(a, "/")
			b, _, _ = strings.Cut(b, "/")
			return a == b || b == "internal"
		}
	}
	return false
}

// TestPolicyCanFail makes sure that the check above is one.
func TestPolicyCanFail(t *testing.T) {
	rules := parse(t, policy)
	r, _ := find(rules, "tensor")
	if reach(rules, r)["comm"] {
		t.Error("tensor may reach comm: it must know nothing of ranks")
	}
	r, _ = find(rules, "dtensor/layout")
	if got := reach(rules, r); len(got) != 0 {
		t.Errorf("dtensor/layout may reach %v: it must be pure", got)
	}
	r, _ = find(rules, "examples/train")
	if !reach(rules, r)["dtensor/layout"] {
		t.Error("examples/train may not reach dtensor/layout: following the rules is broken")
	}
	if _, ok := find(rules, "nowhere"); ok {
		t.Error("a package without a rule got one")
	}
}

// TestOneRecover keeps recover to internal/fault.
func TestOneRecover(t *testing.T) {
	for _, file := range sources(t) {
		if strings.HasSuffix(file, "_test.go") || path.Dir(file) == "internal/fault" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root(t), file))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "recover()") {
			t.Errorf("%s calls recover: only internal/fault does", file)
		}
	}
}

// TestNoInit refuses init functions and dot imports outside tests.
func TestNoInit(t *testing.T) {
	for _, file := range sources(t) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root(t), file))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if strings.HasPrefix(line, "func init()") || strings.HasPrefix(strings.TrimSpace(line), `. "`) {
				t.Errorf("%s:%d: %s", file, i+1, line)
			}
		}
	}
}

// sources returns every Go file of the module, relative to its root.
func sources(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, dir := range packages(t) {
		names, err := filepath.Glob(filepath.Join(root(t), dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			files = append(files, path.Join(dir, filepath.Base(n)))
		}
	}
	return files
}
