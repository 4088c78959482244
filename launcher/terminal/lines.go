package terminal

import (
	"os"
	"unicode/utf8"

	"golang.org/x/term"
)

// EraseLine clears the line of the cursor.
const EraseLine = "\r\x1b[K"

// ClearToEnd clears the line from the cursor on. A program that redraws a line writes it after
// a state that is shorter than the one before.
const ClearToEnd = "\x1b[K"

// Fit appends to dst the part of a status that fits a line of the given
// width. The last column stays free: some terminals begin a new line after it.
// Escape sequences take no room. Fit keeps those that change colours and drops the others.
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

// escape returns the length of the escape sequence at the start of text, 0 if there
// is none. style says that the sequence only changes colours. A byte that is not allowed in an
// escape sequence ends it, and is no part of it.
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

// ColumnsOf returns a function that returns the present width of the terminal f,
// or nil if f is none that draws.
func ColumnsOf(f *os.File) func() int {
	if !Draws(f) {
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
