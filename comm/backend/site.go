package backend

import (
	"runtime"

	"github.com/gorun-spmd/gorun/internal/stack"
)

// A Site is where a call was made: return addresses, resolved only to print.
type Site struct {
	pcs [stack.Depth]uintptr
	n   int
}

// Capture stores the stack above skip frames (1 is Capture's caller).
func (s *Site) Capture(skip int) { s.n = runtime.Callers(skip+1, s.pcs[:]) }

// String is the innermost line outside this package and its backends, such as
// "train/main.go:31"; if that is one of the module's own libraries, the line
// that called the library comes first: "train/main.go:31 via dtensor/grad.go:88".
func (s *Site) String() string {
	line, via := stack.Line(s.pcs[:s.n], ""), stack.Line(s.pcs[:s.n], "comm")
	if line == "" || line == via {
		return via
	}
	return line + " via " + via
}
