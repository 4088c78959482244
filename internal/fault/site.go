package fault

import (
	"errors"
	"strings"

	"github.com/gorun-spmd/gorun/internal/stack"
)

// A site is the stack of a Throw: return addresses, resolved only to print.
type site [stack.Depth]uintptr

// located is a thrown error as Catch stores it.
type located thrown

// Error is the error's text and the line of the program, unless the text has one: the inner line is the one to look at.
func (l located) Error() string {
	text, line := l.err.Error(), l.at.line()
	if inner := (located{}); line == "" || strings.Contains(text, line) || errors.As(l.err, &inner) && inner.at.line() != "" {
		return text
	}
	return text + " (at " + line + ")"
}

// Unwrap returns the error that was thrown.
func (l located) Unwrap() error { return l.err }

// line is the innermost line outside the libraries of this module, such as
// "train/main.go:31"; "" if there is none.
func (s *site) line() string { return stack.Line(s[:], "") }
