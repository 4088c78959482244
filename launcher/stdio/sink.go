//go:build linux

package stdio

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/launcher/terminal"
)

// A sink is a destination of output: gorun's standard output or error, or a rank's
// file. Several sinks may share one target, as two streams share a terminal.
type sink struct {
	target *target
	file   *os.File
	name   string // for messages
}

// A target is one file of the operating system. Lines of different writers do not mix
// in it: a line comes in one piece, or, if it is longer than maxLine, in parts while the
// other writers wait. After holdTime they wait no longer, and their lines go between the parts.
// Else a rank that ends its line only when it has heard of another rank would wait for ever.
type target struct {
	mu      sync.Mutex
	midLine bool  // the text written last does not end a line
	unended bool  // that line never ends: its stream has ended
	plain   bool  // write the text alone: not even a newline after an unended line
	err     error // the first failed write; later ones are dropped
	failed  func(name string, err error)

	holder   *Pump         // the other writers wait until its line has ended; nil: nobody waits
	released chan struct{} // closed when the holder changes
	hold     time.Duration // instead of holdTime, in tests

	columns  func() int     // width of the terminal; nil if the target is no terminal
	statuses map[int][]byte // by rank, see setStatus
	drawn    bool           // a status is on the screen, in the cursor's line
	scratch  []byte
}

// holdTime is how long other writers wait for the end of a line longer than maxLine.
const holdTime = time.Second

// say appends whole lines of gorun's own, on lines of their own.
func (s *sink) say(text []byte) {
	t := s.target
	t.lock(nil)
	defer t.mu.Unlock()
	t.append(s, text, t.midLine)
}

// write appends text that a pump has read: whole lines or a part of one. last says that the
// stream has ended; text may then be empty.
func (s *sink) write(by *Pump, text []byte, last bool) {
	t := s.target
	t.lock(by)
	defer t.mu.Unlock()
	t.append(s, text, t.unended && !t.plain)
	held, inside := t.holder == by, by.inside
	by.inside = !last && !bytes.HasSuffix(text, []byte{'\n'})
	switch {
	case by.inside && !inside:
		t.holder, t.released = by, make(chan struct{})
	case held && !by.inside:
		t.release()
	}
	if len(text) > 0 || held { // else another writer wrote the last line
		t.unended = last && t.midLine
	}
}

// lock locks the target when nobody else holds it, or after holdTime.
func (t *target) lock(by *Pump) {
	var late <-chan time.Time
	t.mu.Lock()
	for t.holder != nil && t.holder != by {
		if late == nil {
			late = time.After(cmp.Or(t.hold, holdTime))
		}
		released := t.released
		t.mu.Unlock()
		select {
		case <-released:
			t.mu.Lock()
		case <-late:
			t.mu.Lock()
			t.release()
		}
	}
}

// release lets other writers write, whether the holder's line has ended or not.
func (t *target) release() {
	if t.holder != nil {
		t.holder = nil
		close(t.released)
	}
}

// append writes text, on a new line if that is asked for, and keeps the status below it.
func (t *target) append(s *sink, text []byte, newLine bool) {
	if len(text) == 0 {
		return
	}
	t.midLine, t.unended = text[len(text)-1] != '\n', false
	if !t.drawn && len(t.statuses) == 0 { // the usual case, without a copy
		if newLine {
			t.put(s, []byte{'\n'})
		}
		t.put(s, text)
		return
	}
	t.scratch = t.erase(t.scratch[:0])
	if newLine {
		t.scratch = append(t.scratch, '\n')
	}
	t.scratch = append(t.scratch, text...)
	if !t.midLine {
		t.scratch = t.draw(t.scratch)
	}
	t.put(s, t.scratch)
}

// put writes to the file, and reports the first failure.
func (t *target) put(s *sink, text []byte) {
	if t.err != nil || len(text) == 0 {
		return
	}
	if t.err = writeAll(s.file, text); t.err != nil {
		t.failed(s.name, t.err)
	}
}

// writeAll writes text to a file. Another process that shares the file may have made it
// non-blocking, as ssh does with a terminal.
func writeAll(f *os.File, text []byte) error {
	for {
		n, err := f.Write(text)
		if !errors.Is(err, unix.EAGAIN) {
			return err
		}
		text = text[n:]
		untilReady(f, unix.POLLOUT)
	}
}

// untilReady returns when one of the events has come, or poll fails. The caller tries again.
func untilReady(f *os.File, events int16) {
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(f.Fd()), Events: events}}, -1)
}

// writeRaw appends a piece of a stream that is the only one of this target.
func (s *sink) writeRaw(text []byte) {
	t := s.target
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(text) == 0 {
		return
	}
	t.put(s, text)
	t.midLine, t.unended = text[len(text)-1] != '\n', false
}

// sameFile reports whether a and b are one file, pipe or terminal.
func sameFile(a, b *os.File) bool {
	var x, y unix.Stat_t
	if unix.Fstat(int(a.Fd()), &x) != nil || unix.Fstat(int(b.Fd()), &y) != nil {
		return false
	}
	return x.Dev == y.Dev && x.Ino == y.Ino && x.Rdev == y.Rdev
}

// standardSinks returns gorun's standard output and error.
func standardSinks(stdout, stderr *os.File, failed func(name string, err error)) (out, err *sink) {
	out = &sink{&target{failed: failed, columns: terminal.ColumnsOf(stdout)}, stdout, "standard output"}
	err = &sink{&target{failed: failed, columns: terminal.ColumnsOf(stderr)}, stderr, "standard error"}
	if sameFile(stdout, stderr) {
		err.target = out.target
	}
	return out, err
}

// rankFiles opens one file for each rank in dir: rank.0, rank.1, …, padded with zeros to
// equal width so that they sort.
func rankFiles(dir string, ranks int, failed func(name string, err error)) ([]*sink, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("--output: %w", err)
	}
	width := len(strconv.Itoa(ranks - 1))
	sinks := make([]*sink, ranks)
	for r := range sinks {
		name := filepath.Join(dir, fmt.Sprintf("rank.%0*d", width, r))
		f, err := os.Create(name)
		if err != nil {
			for _, s := range sinks[:r] {
				s.file.Close()
			}
			return nil, fmt.Errorf("--output: %w", err)
		}
		sinks[r] = &sink{&target{failed: failed, plain: true}, f, name}
	}
	return sinks, nil
}
