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

// String is the innermost line of the program, such as "train/main.go:31", or where there is
// none, as in a goroutine of a library of this module, that library's line.
func (s *Site) String() string {
	if line := stack.Line(s.pcs[:s.n], ""); line != "" {
		return line
	}
	return stack.Line(s.pcs[:s.n], "comm")
}
