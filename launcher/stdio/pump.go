//go:build linux

package stdio

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/launcher/terminal"
)

// A Pump moves one stream of one rank to its sink.
type Pump struct {
	rank int
	from *os.File // read end of a pipe, non-blocking
	to   *sink
	raw  bool // pass on every byte at once: nobody else writes to the sink
	live bool // the sink is a terminal: show a line that is redrawn before it ends
	tag  tag
	tail *tail // nil unless the stream is standard error

	lines   splitter
	inside  bool // the text that was passed on last does not end a line
	scratch []byte
	whole   []byte
}

// RankPump returns the pump for a stream, "stdout" or "stderr", of rank, one of ranks ranks. It
// reads the pipe from.
func (c *Console) RankPump(from *os.File, rank, ranks int, stream string, g Tagging) *Pump {
	p := &Pump{rank: rank, from: from, lines: splitter{limit: maxLine}, tag: g.of(rank, stream, c.colours(stream))}
	p.to, p.raw = c.sink(rank, stream, ranks)
	p.raw = p.raw && p.tag.empty()
	p.live = !p.raw && p.to.target.columns != nil
	if stream == "stderr" {
		p.tail = new(tail)
	}
	return p
}

// Pump returns the pump for a stream of a process that is no rank: the go command or
// another launcher. With clock it writes the time before each line.
func (c *Console) Pump(from *os.File, stream string, clock bool) *Pump {
	p := &Pump{from: from, lines: splitter{limit: maxLine}, tag: tag{clock: clock}, raw: !clock}
	p.to, _ = c.sink(0, stream, 1)
	return p
}

// LastLines returns the last lines of a rank's standard error, or the first lines of a crash.
func (p *Pump) LastLines() []string { return p.tail.lines() }

// Crash returns the line in which Go's runtime says why it ends the program, as "panic: broken"; "" if there is none.
func (p *Pump) Crash() string { return p.tail.crashed() }

// TooManyTasks reports whether a rank has said that it could not make a thread.
func (p *Pump) TooManyTasks() bool {
	p.tail.mu.Lock()
	defer p.tail.mu.Unlock()
	return p.tail.tasks
}

// Run copies until the stream ends, or until Drain.
func (p *Pump) Run() {
	defer p.from.Close()
	for {
		room := p.lines.space()
		n, err := p.from.Read(room)
		if n > 0 {
			p.accept(room[:n])
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			p.empty()
			break
		}
		if err != nil {
			break
		}
	}
	p.finish(p.lines.rest())
}

// Drain makes Run return as soon as the pipe is empty, even if a process still
// holds its other end. It is called when all ranks are gone.
func (p *Pump) Drain() { _ = p.from.SetReadDeadline(time.Unix(1, 0)) }

// empty reads the content of the pipe without waiting for more.
func (p *Pump) empty() {
	pipe, err := p.from.SyscallConn()
	if err != nil {
		return
	}
	for {
		room, n := p.lines.space(), 0
		err := pipe.Control(func(fd uintptr) { n, _ = unix.Read(int(fd), room) })
		if err != nil || n <= 0 {
			return
		}
		p.accept(room[:n])
	}
}

// accept passes on the bytes of a read: all of them if raw is set, else whole lines, and parts
// of a line that is too long to wait for its end.
func (p *Pump) accept(fresh []byte) {
	if p.raw {
		p.to.writeRaw(fresh)
	}
	lines := p.lines.take(len(fresh))
	if p.live {
		p.showStatus(len(lines) > 0)
		p.whole = final(p.whole[:0], lines)
		lines = p.whole
	}
	if len(lines) == 0 {
		return
	}
	if p.tail != nil {
		p.tail.add(lines)
	}
	if p.raw {
		return
	}
	p.write(lines, false)
}

// write writes to the sink, with the tag before each line. A line that comes in parts has one
// tag.
func (p *Pump) write(lines []byte, last bool) {
	if !p.tag.empty() {
		p.scratch = p.scratch[:0]
		if p.inside {
			end := bytes.IndexByte(lines, '\n') + 1
			if end == 0 {
				end = len(lines)
			}
			p.scratch, lines = append(p.scratch, lines[:end]...), lines[end:]
		}
		p.scratch = p.tag.append(p.scratch, lines, time.Now())
		lines = p.scratch
	}
	p.to.write(p, lines, last)
}

// showStatus shows the present state of the line that has not ended, if it is redrawn, and
// forgets its former states. later says that whole lines come first.
func (p *Pump) showStatus(later bool) {
	pending := p.lines.pending()
	over, ok := redrawn(pending)
	if !ok {
		p.to.setStatus(p.rank, nil, later)
		return
	}
	status := bytes.TrimRight(pending[over:], "\r")
	if len(bytes.ReplaceAll(status, []byte(terminal.ClearToEnd), nil)) > 0 {
		status = p.tag.append(nil, status, time.Now())
	} else {
		status = nil
	}
	p.to.setStatus(p.rank, status, later)
	p.lines.drop(max(0, over-1)) // keep one '\r', by which the line stays one that is redrawn
}

// finish passes on the last line, which has no newline.
func (p *Pump) finish(rest []byte) {
	if p.live {
		p.to.setStatus(p.rank, nil, len(rest) > 0)
		rest = final(nil, rest)
	}
	if p.tail != nil {
		p.tail.add(rest)
	}
	if !p.raw && (len(rest) > 0 || p.inside) {
		p.write(rest, true)
	}
}

// A tag says where a line came from, and when.
type tag struct {
	text  string // "[3]<stdout>: ", perhaps with colours
	clock bool
}

// A Tagging says whether tags name the rank that wrote the line (Who), and the time (When).
type Tagging struct{ Who, When bool }

// of makes the tag of a rank's stream, "stdout" or "stderr". It has the form of Open
// MPI 5's tags, so that programs that read those can read gorun's.
func (g Tagging) of(rank int, stream string, colour bool) tag {
	t := tag{clock: g.When}
	if g.Who {
		t.text = fmt.Sprintf("[%d]<%s>: ", rank, stream)
	}
	if g.Who && colour {
		t.text = fmt.Sprintf("\x1b[%dm[%d]<%s>:\x1b[0m ", tagColours[rank%len(tagColours)], rank, stream)
	}
	return t
}

// tagColours are the terminal's colours that are legible on black and on white,
// without red.
var tagColours = [...]int{36, 33, 35, 32, 34, 96, 95, 94}

// clockForm is the time of a line: local, with milliseconds.
const clockForm = "2006-01-02T15:04:05.000 "

func (t *tag) empty() bool { return t.text == "" && !t.clock }

// append appends lines to dst, each with the tag in front.
func (t *tag) append(dst, lines []byte, now time.Time) []byte {
	if t.empty() {
		return append(dst, lines...)
	}
	start := len(dst)
	if t.clock {
		dst = now.AppendFormat(dst, clockForm)
	}
	dst = append(dst, t.text...)
	prefix := slices.Clone(dst[start:])
	dst = dst[:start]
	for line := range bytes.Lines(lines) {
		dst = append(dst, prefix...)
		dst = append(dst, line...)
	}
	return dst
}
