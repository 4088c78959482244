package fault

import (
	"fmt"
	"path"
	"reflect"
	"runtime"
	"strings"
)

// A site is the stack of a Throw: return addresses, resolved only to print.
type site [32]uintptr

// located is a thrown error that a Catch has handed on.
type located thrown

// Error is the error's text and the line of the program, unless the text has it.
func (l located) Error() string {
	text, line := l.err.Error(), l.at.line()
	if line == "" || strings.Contains(text, line) {
		return text
	}
	return text + " (at " + line + ")"
}

// Unwrap returns the error that was thrown.
func (l located) Unwrap() error { return l.err }

// line is the innermost line outside the libraries of this module, such as
// "train/main.go:31"; "" if there is none.
func (s *site) line() string {
	module := path.Dir(path.Dir(reflect.TypeFor[site]().PkgPath()))
	frames := runtime.CallersFrames(s[:])
	for {
		f, more := frames.Next()
		if f.File != "" && !strings.HasPrefix(f.Function, "runtime.") && !library(f, module) {
			dir, file := path.Split(f.File)
			return fmt.Sprintf("%s/%s:%d", path.Base(dir), file, f.Line)
		}
		if !more {
			return ""
		}
	}
}

// library reports whether a frame is in one of the module's packages that are
// for other programs; its tests, examples and benchmarks are programs.
func library(f runtime.Frame, module string) bool {
	in, ok := strings.CutPrefix(f.Function, module+"/")
	return ok && !strings.HasPrefix(in, "examples/") && !strings.HasPrefix(in, "bench/") && !strings.HasSuffix(f.File, "_test.go")
}
