// Command crossvet does to all packages below the working folder what go vet does, for systems other than this one:
//
//	crossvet linux/arm64,nolibs windows/amd64
//
// names two systems, the first with a build tag. Go vet compiles each package and all that they import, the standard
// library too, because it reads their types from what the compiler writes; for a system for which nothing is run
// that is most of its time. Crossvet reads types from the sources.
package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/analysis/passes/appends"
	"golang.org/x/tools/go/analysis/passes/asmdecl"
	"golang.org/x/tools/go/analysis/passes/assign"
	"golang.org/x/tools/go/analysis/passes/atomic"
	"golang.org/x/tools/go/analysis/passes/bools"
	"golang.org/x/tools/go/analysis/passes/buildtag"
	"golang.org/x/tools/go/analysis/passes/cgocall"
	"golang.org/x/tools/go/analysis/passes/composite"
	"golang.org/x/tools/go/analysis/passes/copylock"
	"golang.org/x/tools/go/analysis/passes/defers"
	"golang.org/x/tools/go/analysis/passes/directive"
	"golang.org/x/tools/go/analysis/passes/errorsas"
	"golang.org/x/tools/go/analysis/passes/framepointer"
	"golang.org/x/tools/go/analysis/passes/hostport"
	"golang.org/x/tools/go/analysis/passes/httpresponse"
	"golang.org/x/tools/go/analysis/passes/ifaceassert"
	"golang.org/x/tools/go/analysis/passes/loopclosure"
	"golang.org/x/tools/go/analysis/passes/lostcancel"
	"golang.org/x/tools/go/analysis/passes/nilfunc"
	"golang.org/x/tools/go/analysis/passes/printf"
	"golang.org/x/tools/go/analysis/passes/shift"
	"golang.org/x/tools/go/analysis/passes/sigchanyzer"
	"golang.org/x/tools/go/analysis/passes/slog"
	"golang.org/x/tools/go/analysis/passes/stdmethods"
	"golang.org/x/tools/go/analysis/passes/stdversion"
	"golang.org/x/tools/go/analysis/passes/stringintconv"
	"golang.org/x/tools/go/analysis/passes/structtag"
	"golang.org/x/tools/go/analysis/passes/testinggoroutine"
	"golang.org/x/tools/go/analysis/passes/tests"
	"golang.org/x/tools/go/analysis/passes/timeformat"
	"golang.org/x/tools/go/analysis/passes/unmarshal"
	"golang.org/x/tools/go/analysis/passes/unreachable"
	"golang.org/x/tools/go/analysis/passes/unsafeptr"
	"golang.org/x/tools/go/analysis/passes/unusedresult"
	"golang.org/x/tools/go/analysis/passes/waitgroup"
	"golang.org/x/tools/go/packages"
)

// suite is what go vet looks for.
var suite = []*analysis.Analyzer{
	appends.Analyzer, asmdecl.Analyzer, assign.Analyzer, atomic.Analyzer, bools.Analyzer, buildtag.Analyzer,
	cgocall.Analyzer, composite.Analyzer, copylock.Analyzer, defers.Analyzer, directive.Analyzer, errorsas.Analyzer,
	framepointer.Analyzer, hostport.Analyzer, httpresponse.Analyzer, ifaceassert.Analyzer, loopclosure.Analyzer,
	lostcancel.Analyzer, nilfunc.Analyzer, printf.Analyzer, shift.Analyzer, sigchanyzer.Analyzer, slog.Analyzer,
	stdmethods.Analyzer, stdversion.Analyzer, stringintconv.Analyzer, structtag.Analyzer, testinggoroutine.Analyzer,
	tests.Analyzer, timeformat.Analyzer, unmarshal.Analyzer, unreachable.Analyzer, unsafeptr.Analyzer,
	unusedresult.Analyzer, waitgroup.Analyzer,
}

func main() {
	ok := true
	for _, system := range os.Args[1:] {
		found, err := vet(".", system)
		if err != nil {
			fmt.Fprintf(os.Stderr, "crossvet: %s: %v\n", system, err)
			os.Exit(2)
		}
		for _, f := range found {
			fmt.Fprintf(os.Stderr, "%s: %s\n", system, f)
		}
		ok = ok && len(found) == 0
	}
	if !ok {
		os.Exit(1)
	}
}

// vet returns what is wrong with the packages below dir and their tests, built without cgo for a system and with the
// tags that follow its name, each after a comma.
func vet(dir, system string) (found []string, err error) {
	target, tags, _ := strings.Cut(system, ",")
	goos, goarch, ok := strings.Cut(target, "/")
	if !ok {
		return nil, errors.New("want GOOS/GOARCH, as in linux/arm64")
	}
	all, err := packages.Load(&packages.Config{
		Mode: packages.LoadAllSyntax | packages.NeedModule, Dir: dir, Tests: true, BuildFlags: []string{"-tags=" + tags},
		Env: append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0"),
	}, "./...")
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errors.New("there are no packages in " + dir)
	}
	add := func(f string) { // once: a package and its tests share files
		if !slices.Contains(found, f) {
			found = append(found, f)
		}
	}
	for p := range packages.Postorder(all) {
		for _, e := range p.Errors {
			add(e.Error())
		}
	}
	if len(found) > 0 { // types are not known
		return found, nil
	}
	graph, err := checker.Analyze(suite, all, nil)
	if err != nil {
		return nil, err
	}
	for act := range graph.All() {
		if !act.IsRoot {
			continue
		}
		if act.Err != nil {
			return nil, act.Err
		}
		for _, d := range act.Diagnostics {
			add(fmt.Sprintf("%v: %s", act.Package.Fset.Position(d.Pos), d.Message))
		}
	}
	return found, nil
}
