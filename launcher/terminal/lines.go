package terminal

import (
	"os"
	"unicode/utf8"

	"golang.org/x/term"
)

// EraseLine clears the line that the cursor is in.
const EraseLine = "\r\x1b[K"

// ClearToEnd is how a program clears what a longer state has left.
const ClearToEnd = "\x1b[K"

// Fit appends to dst as much of a status as has room in a line of the given
// width. The last column stays free: some terminals begin a new line after it.
// Escape sequences take no room; those that would leave the line are left out.
func Fit(dst, status []byte, columns int) []byte {
	styled := false
	for used := 0; len(status) > 0; {
		if n, style := escape(status); n > 0 {
			if style {
				dst = append(dst, status[:n]...)
				styled = true
			}
			status = status[n:]
			continue
		}
		_, n := utf8.DecodeRune(status)
		if status[0] >= ' ' && used < columns-1 {
			dst = append(dst, status[:n]...)
			used++
		}
		status = status[n:]
	}
	if styled {
		dst = append(dst, "\x1b[m"...)
	}
	return dst
}

// escape returns the length of the escape sequence that text begins with, 0 if
// it begins with none, and whether it only changes colours. A byte that no escape
// sequence can have ends it, and is no part of it.
func escape(text []byte) (n int, style bool) {
	if text[0] != '\x1b' {
		return 0, false
	}
	if len(text) < 2 || text[1] != '[' {
		return 1, false
	}
	for i := 2; i < len(text); i++ {
		switch c := text[i]; {
		case c >= '@' && c <= '~':
			return i + 1, c == 'm'
		case c < ' ' || c > '~':
			return i, false
		}
	}
	return len(text), false
}

// ColumnsOf returns a function that returns the width of a terminal at the time,
// nil if f is none.
func ColumnsOf(f *os.File) func() int {
	if !IsTerminal(f) {
		return nil
	}
	return func() int {
		columns, _, err := term.GetSize(int(f.Fd()))
		if err != nil || columns <= 0 {
			return 80
		}
		return columns
	}
}
