// Package stack finds the line of a program that led to a call.
package stack

import (
	"fmt"
	"path"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// Depth is how many frames are kept of a stack in which Line is to find a line of the program. Within train.Run the gradient of a
// recomputed nn.Block is over 16 frames below it.
const Depth = 32

// Line returns the innermost line outside Go's own packages and those libraries of this module whose names
// begin with within ("comm"), such as "train/main.go:31"; "" if there is none.
func Line(pcs []uintptr, within string) string {
	module := path.Dir(path.Dir(reflect.TypeFor[home]().PkgPath()))
	frames := runtime.CallersFrames(pcs)
	for {
		f, more := frames.Next()
		if f.File != "" && !own(f) && !library(f, module, within) {
			return lineOf(f)
		}
		if !more {
			return ""
		}
	}
}

func lineOf(f runtime.Frame) string {
	dir, file := path.Split(f.File)
	return fmt.Sprintf("%s/%s:%d", path.Base(dir), file, f.Line)
}

// Entry returns the innermost call of a program into the libraries of this module, such as "dtensor.(*Tensor).Add" and
// "train/main.go:31", if the stack ends in them or in what they have called of Go's own; else "".
func Entry(pcs []uintptr) (function, line string) {
	module := path.Dir(path.Dir(reflect.TypeFor[home]().PkgPath()))
	frames := runtime.CallersFrames(pcs)
	for {
		f, more := frames.Next()
		switch {
		case library(f, module, ""):
			function = f.Function[strings.LastIndexByte(f.Function, '/')+1:]
		case function != "":
			return function, lineOf(f)
		case !own(f):
			return "", ""
		}
		if !more {
			return "", ""
		}
	}
}

// own reports whether a frame is in one of Go's packages that run functions of others.
func own(f runtime.Frame) bool {
	return slices.ContainsFunc([]string{"runtime.", "internal/", "iter.", "maps.", "slices.", "sort.", "sync.", "sync/"},
		func(name string) bool { return strings.HasPrefix(f.Function, name) })
}

// Library reports whether a frame is in one of the module's packages that are for other programs.
func Library(f runtime.Frame) bool {
	return library(f, path.Dir(path.Dir(reflect.TypeFor[home]().PkgPath())), "")
}

// home is a type from which this package learns its own import path, internal/stack of the
// module.
type home struct{}

// library reports whether a frame is in one of this module's libraries whose names begin with
// within. The module's tests, examples and benchmarks are programs, not libraries.
func library(f runtime.Frame, module, within string) bool {
	if in, ok := strings.CutPrefix(f.Function, module+"/"); ok && isLibrary(in, f.File, within) {
		return true
	}
	// A function inside one of a library that was inlined has a name of the program's: main.run.Queue.func1.
	in, ok := strings.CutPrefix(f.File, root())
	return ok && isLibrary(in, f.File, within)
}

// root returns what the names of the module's files begin with.
var root = sync.OnceValue(func() string {
	_, here, _, _ := runtime.Caller(0)
	return strings.TrimSuffix(here, "internal/stack/stack.go")
})

// isLibrary says it of a function or a file, as it is called inside the module.
func isLibrary(in, file, within string) bool {
	if !strings.HasPrefix(in, within) || strings.HasSuffix(file, "_test.go") || strings.Contains(in, "/testdata/") {
		return false
	}
	return !slices.ContainsFunc([]string{"examples/", "bench/", "cmd/", "comm/commtest"},
		func(programs string) bool { return strings.HasPrefix(in, programs) })
}
