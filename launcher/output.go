package launcher

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// A sink is where output ends: gorun's standard output or error, or a rank's
// file. Several sinks may share one target, as two streams share a terminal.
type sink struct {
	target *target
	file   *os.File
	name   string // for messages
}

// A target is one file of the operating system. It never holds half a line in
// front of another writer's.
type target struct {
	mu      sync.Mutex
	midLine bool
	err     error // the first failed write; later ones are dropped
	failed  func(name string, err error)

	columns  func() int     // width of the terminal; nil if it is none
	statuses map[int][]byte // by rank, see setStatus
	drawn    bool           // one of them is on the screen, in the cursor's line
	scratch  []byte
}

// write appends text, in one piece. partial says that it does not end a line, and
// that nobody will end it; the next write then starts a new one.
func (s *sink) write(text []byte, partial bool) {
	if len(text) == 0 {
		return
	}
	t := s.target
	t.mu.Lock()
	defer t.mu.Unlock()
	midLine := t.midLine
	t.midLine = partial
	if !t.drawn && len(t.statuses) == 0 { // the usual case, without a copy
		if midLine {
			t.put(s, []byte{'\n'})
		}
		t.put(s, text)
		return
	}
	t.scratch = t.erase(t.scratch[:0])
	if midLine {
		t.scratch = append(t.scratch, '\n')
	}
	t.scratch = append(t.scratch, text...)
	if !partial {
		t.scratch = t.draw(t.scratch)
	}
	t.put(s, t.scratch)
}

// put writes to the file, and takes note of the first failure.
func (t *target) put(s *sink, text []byte) {
	if t.err != nil || len(text) == 0 {
		return
	}
	if t.err = writeAll(s.file, text); t.err != nil {
		t.failed(s.name, t.err)
	}
}

// writeAll writes text to a file that somebody who shares it may have made
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

// untilReady returns when events are there, or when it is worth another try.
func untilReady(f *os.File, events int16) {
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(f.Fd()), Events: events}}, -1)
}

// writeRaw appends a piece of a stream that has this target to itself.
func (s *sink) writeRaw(text []byte) {
	t := s.target
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(text) == 0 {
		return
	}
	t.put(s, text)
	t.midLine = text[len(text)-1] != '\n'
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
	out = &sink{&target{failed: failed, columns: columnsOf(stdout)}, stdout, "standard output"}
	err = &sink{&target{failed: failed, columns: columnsOf(stderr)}, stderr, "standard error"}
	if sameFile(stdout, stderr) {
		err.target = out.target
	}
	return out, err
}

// rankFiles opens one file a rank in dir: rank.0, rank.1, …, padded with zeros to
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
		sinks[r] = &sink{&target{failed: failed}, f, name}
	}
	return sinks, nil
}
