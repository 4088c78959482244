//go:build linux

package stdio

import (
	"bytes"
	"strings"
	"sync"
)

// maxLine is the longest line, in bytes with its newline, that is kept in memory until
// it has ended. A longer line is passed on in parts.
const maxLine = 1 << 20

// A splitter turns a stream into pieces of whole lines. A line that is longer than the limit
// comes in several pieces. The splitter copies a byte only if it belongs to a line that has not
// ended yet.
//
//	for {
//		n := read(s.space())
//		write(s.take(n))
//	}
//	write(s.rest())
type splitter struct {
	limit int    // longest line
	buf   []byte // buf[taken:end] was read and not yet returned by take
	taken int
	end   int
	full  bool // the last read filled its room: the stream is fast
}

// usualRead is the largest room for a fast stream whose lines are short.
const usualRead = 64 << 10

// space returns room for the next read, at least one byte. The slice that take returned is
// no longer valid.
func (s *splitter) space() []byte {
	if s.taken > 0 {
		s.end = copy(s.buf, s.buf[s.taken:s.end])
		s.taken = 0
	}
	if s.end == len(s.buf) || s.full && len(s.buf) < usualRead {
		bigger := make([]byte, min(max(2*len(s.buf), 4096), s.limit))
		copy(bigger, s.buf[:s.end])
		s.buf = bigger
	}
	return s.buf[s.end:]
}

// take accepts n bytes that were read into space and returns the lines that are
// now whole, in one slice. If a line has reached the limit without a newline, it returns the
// part that it has.
func (s *splitter) take(n int) (lines []byte) {
	fresh := s.buf[s.end : s.end+n]
	s.end += n
	s.full = s.end == len(s.buf)
	if i := bytes.LastIndexByte(fresh, '\n'); i >= 0 {
		s.taken = s.end - n + i + 1
		return s.buf[:s.taken]
	}
	if s.end == s.limit {
		s.taken = s.end
		return s.buf
	}
	return nil
}

// rest returns the line that has not ended when the stream has.
func (s *splitter) rest() []byte {
	rest := s.buf[s.taken:s.end]
	s.taken = s.end
	return rest
}

// drop forgets the first n bytes of the line that has not ended. The slice that take
// returned stays valid.
func (s *splitter) drop(n int) { s.taken += n }

// pending returns the line that has not ended.
func (s *splitter) pending() []byte { return s.buf[s.taken:s.end] }

// A tail remembers the last lines of a stream. If the stream ends in a Go panic or
// fatal error, it remembers the first lines of that instead.
type tail struct {
	mu    sync.Mutex
	kept  []byte // whole lines
	crash bool   // kept begins where the program crashed
	tasks bool   // Go's runtime has said that it could not make a thread
}

// A report repeats at most so much of a rank's standard error.
const (
	tailLines = 10
	tailBytes = 4096
)

// crashMarks are the beginnings of the line in which Go's runtime says why it ends the program.
// The signals are those for which it prints stacks and registers.
var crashMarks = [...]string{
	"panic: ", "fatal error: ", "runtime: goroutine stack exceeds",
	"SIGQUIT: quit", "SIGABRT: abort", "SIGSEGV: segmentation violation", "SIGBUS: bus error", "SIGFPE: floating-point exception",
	"SIGILL: illegal instruction", "SIGTRAP: trace trap", "SIGSYS: bad system call", "SIGSTKFLT: stack fault",
}

// add takes whole lines, or a part of a long one.
func (t *tail) add(lines []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tasks = t.tasks || bytes.Contains(lines, []byte("cgo: pthread_create failed")) ||
		bytes.Contains(lines, []byte("runtime: failed to create new OS thread"))
	if i := crashStart(lines); i >= 0 {
		t.kept, t.crash = t.kept[:0], true
		lines = lines[i:]
	}
	if t.crash {
		if room := tailBytes - len(t.kept); room > 0 {
			t.kept = append(t.kept, lines[:min(room, len(lines))]...)
		}
		return
	}
	if len(lines) > tailBytes {
		lines = lines[len(lines)-tailBytes:]
		t.kept = t.kept[:0]
	}
	t.kept = append(t.kept, lines...)
	if over := len(t.kept) - tailBytes; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
}

// crashStart returns the start of the last line that begins with a crash mark, -1 if there is
// none.
func crashStart(lines []byte) int {
	last := -1
	for _, mark := range crashMarks {
		for end := len(lines); end > 0; {
			i := bytes.LastIndex(lines[:end], []byte(mark))
			if i < 0 {
				break
			}
			if i == 0 || lines[i-1] == '\n' {
				last = max(last, i)
				break
			}
			end = i
		}
	}
	return last
}

// lines returns the remembered lines, oldest first.
func (t *tail) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := bytes.TrimRight(bytes.ToValidUTF8(t.kept, []byte("\uFFFD")), "\n")
	if len(text) == 0 {
		return nil
	}
	var lines []string
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		lines = append(lines, string(line))
	}
	if t.crash {
		return lines[:min(len(lines), tailLines)]
	}
	if len(t.kept) >= tailBytes && len(lines) > 1 {
		lines = lines[1:] // the first is cut
	}
	return lines[max(0, len(lines)-tailLines):]
}

// crashed returns the line with which a crash begins, "" if there is none.
func (t *tail) crashed() string {
	lines := t.lines()
	if !t.crash || len(lines) == 0 {
		return ""
	}
	return CrashLine(lines[0])
}

// CrashLine returns a line in which Go's runtime says why it ends the program, without what it adds of a panic that was
// recovered on its way; "" if the line is none.
func CrashLine(line string) string {
	if crashStart([]byte(line)) != 0 {
		return ""
	}
	if i := strings.LastIndex(line, " [recovered"); i > 0 && strings.HasSuffix(line, "]") {
		line = line[:i]
	}
	return line
}
