package comm

import (
	"fmt"
	"path"
	"reflect"
	"runtime"
	"strings"
)

// A site is where a call was made: return addresses, resolved only to print.
type site struct {
	pcs [16]uintptr
	n   int
}

// capture stores the stack above skip frames (1 is capture's caller).
func (s *site) capture(skip int) { s.n = runtime.Callers(skip+1, s.pcs[:]) }

// String is the innermost line outside this package and its backends, such as
// "train/main.go:31"; if that is one of the module's own libraries, the line
// that called the library comes first: "train/main.go:31 via dtensor/grad.go:88".
func (s *site) String() string {
	if s.n == 0 {
		return ""
	}
	own := reflect.TypeFor[Comm]().PkgPath()
	module := path.Dir(own)
	frames := runtime.CallersFrames(s.pcs[:s.n])
	via := ""
	for {
		f, more := frames.Next()
		if f.File != "" && !strings.HasPrefix(f.Function, "runtime.") {
			line := fmt.Sprintf("%s:%d", short(f.File), f.Line)
			test := strings.HasSuffix(f.File, "_test.go")
			switch {
			case !test && inside(f.Function, own):
			case !test && library(f.Function, module):
				if via == "" {
					via = line
				}
			case via != "":
				return line + " via " + via
			default:
				return line
			}
		}
		if !more {
			return via
		}
	}
}

// inside reports whether function is in this package, own, or a backend.
func inside(function, own string) bool {
	return within(function, own) && !within(function, own+"/commtest")
}

// within reports whether function belongs to package pkg or one below it.
func within(function, pkg string) bool {
	rest, ok := strings.CutPrefix(function, pkg)
	return ok && rest != "" && (rest[0] == '.' || rest[0] == '/')
}

// library reports whether function is in one of the module's packages that
// make calls for their users.
func library(function, module string) bool {
	for _, p := range []string{"dtensor", "nn", "embedding", "loss", "optim", "checkpoint", "runtime"} {
		if within(function, module+"/"+p) {
			return true
		}
	}
	return false
}

// short keeps the last two elements of a file's path.
func short(file string) string {
	dir, base := path.Split(file)
	return path.Join(path.Base(dir), base)
}
