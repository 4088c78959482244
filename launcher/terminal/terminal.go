package terminal

import (
	"os"

	"golang.org/x/term"
)

// IsTerminal reports whether f is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// Draws reports whether f is a terminal that obeys escape sequences; a dumb one shows them.
func Draws(f *os.File) bool { return IsTerminal(f) && os.Getenv("TERM") != "dumb" }
