package launcher

import (
	"bytes"
	"os"
	"unicode/utf8"

	"golang.org/x/term"
)

// A rank that redraws a line in place (a progress bar) writes text after a
// carriage return and no newline. On a terminal that is the rank's status: its
// last state is shown below the lines of all ranks, erased before more lines are
// written, and drawn again after them. Anywhere else it is part of a line that
// has not ended.

// eraseLine clears the line that the cursor is in.
const eraseLine = "\r\x1b[K"

// clearToEnd is how a program clears what a longer state has left.
const clearToEnd = "\x1b[K"

// redrawn returns how many bytes of text, which is part of one line, are
// overwritten by what follows them; ok is false if text is not redrawn.
func redrawn(text []byte) (over int, ok bool) {
	last := bytes.LastIndexByte(text, '\r')
	if last < 0 {
		return 0, false
	}
	if last == len(text)-1 { // the next state has not begun
		last = bytes.LastIndexByte(text[:last], '\r')
	}
	return last + 1, true
}

// final appends lines to dst as they stand on a terminal when they have ended:
// of a line that was redrawn the last state.
func final(dst, lines []byte) []byte {
	for line := range bytes.Lines(lines) {
		end := len(bytes.TrimRight(line, "\r\n"))
		text, newline := line[:end], line[end:]
		if over, ok := redrawn(text); ok {
			text = bytes.ReplaceAll(text[over:], []byte(clearToEnd), nil)
		}
		dst = append(append(dst, text...), newline...)
	}
	return dst
}

// fit appends to dst as much of a status as has room in a line of the given
// width. The last column stays free: some terminals begin a new line after it.
// Escape sequences take no room; those that would leave the line are left out.
func fit(dst, status []byte, columns int) []byte {
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
// it begins with none, and whether it only changes colours.
func escape(text []byte) (n int, style bool) {
	if text[0] != '\x1b' {
		return 0, false
	}
	if len(text) < 2 || text[1] != '[' {
		return 1, false
	}
	for i := 2; i < len(text); i++ {
		if c := text[i]; c >= '@' && c <= '~' {
			return i + 1, c == 'm'
		}
	}
	return len(text), false
}

// setStatus shows, or with no text removes, the status of a rank. There is one
// line for it: that of the lowest rank that has one. later says that a line is
// about to be written, and the screen may wait for it.
func (s *sink) setStatus(rank int, status []byte, later bool) {
	t := s.target
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(status) == 0 {
		if _, has := t.statuses[rank]; !has {
			return
		}
		delete(t.statuses, rank)
	} else {
		if t.statuses == nil {
			t.statuses = map[int][]byte{}
		}
		t.statuses[rank] = append(t.statuses[rank][:0], status...)
	}
	if later || t.midLine {
		return
	}
	t.scratch = t.erase(t.scratch[:0])
	t.put(s, t.draw(t.scratch))
}

// erase appends what removes the status from the screen.
func (t *target) erase(dst []byte) []byte {
	if t.drawn {
		t.drawn = false
		dst = append(dst, eraseLine...)
	}
	return dst
}

// draw appends the status that is to be seen.
func (t *target) draw(dst []byte) []byte {
	lowest := -1
	for rank := range t.statuses {
		if lowest < 0 || rank < lowest {
			lowest = rank
		}
	}
	if lowest < 0 {
		return dst
	}
	t.drawn = true
	return fit(dst, t.statuses[lowest], t.columns())
}

// columnsOf returns a function that returns the width of a terminal at the time,
// nil if f is none.
func columnsOf(f *os.File) func() int {
	if !isTerminal(f) {
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
