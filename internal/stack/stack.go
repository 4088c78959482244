// Package stack finds the line of a program that led to a call.
package stack

import (
	"fmt"
	"path"
	"reflect"
	"runtime"
	"strings"
)

// Line returns the innermost line outside those libraries of this module whose names
// begin with within ("comm"), such as "train/main.go:31"; "" if there is none.
func Line(pcs []uintptr, within string) string {
	module := path.Dir(path.Dir(reflect.TypeFor[home]().PkgPath()))
	frames := runtime.CallersFrames(pcs)
	for {
		f, more := frames.Next()
		if f.File != "" && !strings.HasPrefix(f.Function, "runtime.") && !library(f, module, within) {
			dir, file := path.Split(f.File)
			return fmt.Sprintf("%s/%s:%d", path.Base(dir), file, f.Line)
		}
		if !more {
			return ""
		}
	}
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
	in, ok := strings.CutPrefix(f.Function, module+"/")
	if !ok || !strings.HasPrefix(in, within) || strings.HasSuffix(f.File, "_test.go") {
		return false
	}
	for _, programs := range []string{"examples/", "bench/", "comm/commtest"} {
		if strings.HasPrefix(in, programs) {
			return false
		}
	}
	return true
}
