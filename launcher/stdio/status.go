//go:build linux

package stdio

import (
	"bytes"

	"github.com/gorun-spmd/gorun/launcher/terminal"
)

// A rank that redraws a line in place, such as a progress bar, writes text after a
// carriage return and no newline. On a terminal this text is the rank's status: its
// last state is shown below the lines of all ranks, erased before more lines are
// written, and drawn again after them. In a file it is part of a line that
// has not ended.

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

// final appends lines to dst as they finally stand on a terminal: a line that was redrawn
// has its last state.
func final(dst, lines []byte) []byte {
	for line := range bytes.Lines(lines) {
		end := len(bytes.TrimRight(line, "\r\n"))
		text, newline := line[:end], line[end:]
		if over, ok := redrawn(text); ok {
			text = bytes.ReplaceAll(text[over:], []byte(terminal.ClearToEnd), nil)
		}
		dst = append(append(dst, text...), newline...)
	}
	return dst
}

// setStatus sets the status of a rank; without text it removes it. The screen has one
// status line, which shows the lowest rank that has a status. later says that a line is
// about to be written, and that the screen may wait for it.
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

// erase appends the codes that remove the status from the screen.
func (t *target) erase(dst []byte) []byte {
	if t.drawn {
		t.drawn = false
		dst = append(dst, terminal.EraseLine...)
	}
	return dst
}

// draw appends the status of the lowest rank that has one.
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
	return terminal.Fit(dst, t.statuses[lowest], t.columns())
}
