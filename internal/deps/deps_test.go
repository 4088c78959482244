// Package deps holds the policies of the whole tree as tests: who may import
// whom, and the house rules that a grep can check.
package deps

import (
	"cmp"
	"go/build"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
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
	internal/ints      <
	internal/stack     <
	internal/fault     < internal/stack
	internal/invariant <
	internal/simd      < internal/activation internal/dtype
	internal/pairwise  <
	internal/gemm      < internal/ints internal/simd internal/pairwise
	internal/linalg    <
	internal/philox    < internal/simd
	internal/cgroup    <
	internal/mem       < internal/cgroup internal/fault internal/ints internal/invariant
	internal/control   < internal/invariant internal/release internal/mem
	internal/job       <
	internal/keepalive <
	internal/writable  <
	internal/snapshot  < internal/simd
	internal/depot     < internal/keepalive internal/snapshot
	internal/observe   <
	internal/forecast  < internal/gemm
	internal/testenv   <
	internal/deadlock  <
	internal/release   <
	internal/object    <

	comm/internal/structs <
	comm/backend  < comm/internal/structs internal/fold internal/ints internal/mem internal/stack
	comm          < comm/backend internal/invariant internal/object internal/release
	internal/fold < internal/dtype internal/simd
	comm/mem      < comm internal/deadlock
	comm/standin  < comm/mem
	comm/device   < comm internal/mem
	comm/internal/names < comm/backend internal/control
	comm/shm      < comm comm/internal/names
	comm/mpi      < comm comm/internal/names comm/mpi/exchange
	comm/gompi    < comm comm/mpi/blocking
	comm/empi     < comm comm/mpi/blocking
	comm/mpi/blocking < comm comm/mpi/exchange
	comm/mpi/exchange < comm
	comm/mpi/blocking/blockingtest < comm/commtest comm/mpi/blocking internal/testenv
	comm/topology < comm
	comm/window   < comm
	comm/message  < comm internal/object internal/release
	comm/commtest < comm comm/mem comm/topology comm/window comm/message internal/testenv

	tensor/kernel < internal/activation internal/dtype internal/fold internal/mem internal/philox internal/simd
	tensor/cpu    < tensor/kernel internal/gemm internal/mem
	tensor      < tensor/cpu internal/fault
	tensor/cuda < tensor
	tensor/meta < tensor
	tensor/cuda/cudatest < internal/testenv

	dtensor/layout < internal/ints internal/pairwise
	internal/index < tensor
	internal/keytable < internal/mem internal/simd
	dtensor        < tensor comm dtensor/layout internal/forecast internal/index internal/linalg internal/observe
	dtensor/visualize < dtensor
	internal/rates < dtensor internal/forecast
	nn             < dtensor embedding
	serve          <
	internal/rowstore < internal/fault internal/ints internal/simd
	embedding      < dtensor internal/keytable internal/rates internal/rowstore serve
	loss           < dtensor
	optim          < dtensor
	checkpoint     < dtensor checkpoint/safetensors internal/forecast internal/job internal/object internal/snapshot
	checkpoint/safetensors < internal/dtype

	runtime    < comm/device comm/mem comm/shm comm/standin tensor/meta internal/forecast ` +
	`comm/mpi comm/gompi comm/empi tensor/cuda internal/job internal/depot internal/observe internal/writable launcher/watchdog
	launcher   < internal/mem launcher/report launcher/build launcher/handover launcher/doctor launcher/top internal/forecast internal/snapshot
	launcher/handover   < launcher/options launcher/stdio launcher/machine launcher/watchdog internal/depot
	launcher/build      < launcher/options launcher/stdio
	launcher/doctor     < launcher/options launcher/machine launcher/phrase internal/control
	launcher/top        < launcher/options launcher/terminal launcher/phrase launcher/proc internal/control internal/snapshot
	launcher/options    < launcher/exit launcher/hosts internal/job internal/writable
	launcher/stdio      < launcher/supervisor launcher/terminal
	launcher/supervisor < launcher/guardian launcher/phrase launcher/watchdog internal/snapshot
	launcher/guardian   < launcher/exit launcher/hosts launcher/machine launcher/proc
	launcher/watchdog   < launcher/phrase internal/control internal/deadlock
	launcher/hosts    <
	launcher/machine  < internal/cgroup
	launcher/proc     <
	launcher/phrase   <
	launcher/terminal <
	launcher/exit     < internal/cgroup
	launcher/report   < launcher/phrase internal/control internal/ints internal/observe
	cmd/gorun  < launcher checkpoint runtime internal/rates

	data             < dtensor internal/job internal/snapshot
	data/internal/sealed <
	data/tokenizer   < data/internal/sealed internal/fault
	data/corpus      < data/tokenizer
	data/criteo      < embedding
	data/ngram       < metrics
	metrics          < comm
	metrics/progress <
	metrics/losscurve <
	train            < runtime checkpoint optim nn metrics metrics/progress dtensor/visualize
	train/sample     < loss

	examples/12-heat       < runtime comm/topology
	examples/14-work-queue < runtime comm/window
	examples/...         < embedding loss train train/sample data data/corpus data/criteo data/ngram metrics/losscurve dtensor/visualize
	internal/programtest < checkpoint internal/forecast internal/testenv
	bench/...            < runtime comm/message comm/topology comm/window nn embedding loss optim checkpoint internal/gemm internal/simd
	bench/internal/measuretest < bench/internal/measure comm/commtest
	internal/conformance/... < runtime nn embedding loss optim
	internal/dynamictest < embedding optim checkpoint
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
// any tag; tests may also use packages for tests.
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
				forTests := strings.HasSuffix(rel, "test") || rel == "internal/testenv" || rel == "comm/mem" || rel == "launcher" || rel == dir
				if !allowed[rel] && !(test && forTests) {
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
	if got := reach(rules, r); len(got) != 2 || !got["internal/ints"] || !got["internal/pairwise"] {
		t.Errorf("dtensor/layout may reach %v: it must be pure, and needs the arithmetic of internal/ints and internal/pairwise alone", got)
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

// TestNothingIsChosenByCgo keeps the files of a package the same with cgo and without it, so that verify need not vet both:
// those of other modules that need cgo are behind the tags gompi and mpi.
func TestNothingIsChosenByCgo(t *testing.T) {
	chosen := regexp.MustCompile(`(?m)^//go:build .*\bcgo\b|^(import)?\s+"(C|runtime/cgo)"$`)
	for _, file := range sources(t) {
		text, err := os.ReadFile(filepath.Join(root(t), file))
		if err != nil {
			t.Fatal(err)
		}
		if found := chosen.Find(text); found != nil {
			t.Errorf("%s: %q makes the file depend on cgo: have verify vet linux/amd64 in SYSTEMS again", file, found)
		}
	}
	for _, other := range []string{"//go:build linux && cgo\n", "import \"C\"\n", "import (\n\t\"C\"\n)\n"} {
		if !chosen.MatchString(other) {
			t.Errorf("%q is not found", other)
		}
	}
}

// TestLineLength refuses lines of more than 140 columns, generated files apart. A tab
// counts as one column.
func TestLineLength(t *testing.T) {
	const most = 140
	top, read := root(t), 0
	err := filepath.WalkDir(top, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && file != top && strings.HasPrefix(d.Name(), ".") {
			return cmp.Or(err, filepath.SkipDir)
		}
		if d.IsDir() || !strings.HasSuffix(file, ".go") {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil || generated.Match(text) {
			return err
		}
		read++
		for i, line := range strings.Split(string(text), "\n") {
			if n := utf8.RuneCountInString(line); n > most {
				t.Errorf("%s:%d has %d columns; break it at %d", file, i+1, n, most)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if read < 100 {
		t.Errorf("only %d files were read: the walk does not see the tree", read)
	}
}

// generated matches the line that marks a generated file, as the go command defines it.
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

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
