package launcher

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// A pump moves one stream of one rank to its sink.
type pump struct {
	rank int
	from *os.File // read end of a pipe, non-blocking
	to   *sink
	raw  bool // pass on every byte at once: nobody else writes to the sink
	live bool // the sink is a terminal: show a line that is redrawn before it ends
	tag  tag
	tail *tail // of standard error; nil else

	lines   splitter
	scratch []byte
	whole   []byte
}

// run copies until the stream ends, or until drain.
func (p *pump) run() {
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

// drain makes run return as soon as the pipe is empty, also if somebody still
// holds its other end. It is for when all ranks are gone.
func (p *pump) drain() { _ = p.from.SetReadDeadline(time.Unix(1, 0)) }

// empty reads what is in the pipe without waiting for more.
func (p *pump) empty() {
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

// accept hands on what was read: all of it if the sink is the rank's own, else the
// lines that are whole.
func (p *pump) accept(fresh []byte) {
	if p.raw {
		p.to.writeRaw(fresh)
	}
	lines, cut := p.lines.take(len(fresh))
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
	if !p.tag.empty() || cut {
		p.scratch = p.tag.append(p.scratch[:0], lines, time.Now())
		if cut {
			p.scratch = append(p.scratch, cutMark...)
		}
		lines = p.scratch
	}
	p.to.write(lines, false)
}

// showStatus shows what the line that has not ended says now, if it is redrawn.
// What it said before is forgotten. later says that whole lines come first.
func (p *pump) showStatus(later bool) {
	pending := p.lines.pending()
	over, ok := redrawn(pending)
	if !ok {
		p.to.setStatus(p.rank, nil, later)
		return
	}
	status := bytes.TrimRight(pending[over:], "\r")
	if len(bytes.ReplaceAll(status, []byte(clearToEnd), nil)) > 0 {
		status = p.tag.append(nil, status, time.Now())
	} else {
		status = nil
	}
	p.to.setStatus(p.rank, status, later)
	p.lines.drop(max(0, over-1)) // what follows is still a line that is redrawn
}

// finish hands on the last line, which has no newline.
func (p *pump) finish(rest []byte) {
	if p.live {
		p.to.setStatus(p.rank, nil, len(rest) > 0)
		rest = final(nil, rest)
	}
	if len(rest) == 0 {
		return
	}
	if p.tail != nil {
		p.tail.add(rest)
	}
	if !p.raw {
		p.to.write(p.tag.append(nil, rest, time.Now()), true)
	}
}

// A tag says where a line came from, and when.
type tag struct {
	text  string // "[3]<stdout>: ", with colours if it has any
	clock bool
}

// newTag makes the tag of a rank's stream, "stdout" or "stderr". The form is Open
// MPI 5's, so that what reads its output reads gorun's.
func newTag(o *options, rank int, stream string, colour bool) tag {
	t := tag{clock: o.timestamp}
	if o.tag {
		t.text = fmt.Sprintf("[%d]<%s>: ", rank, stream)
	}
	if o.tag && colour {
		t.text = fmt.Sprintf("\x1b[%dm[%d]<%s>:\x1b[0m ", tagColours[rank%len(tagColours)], rank, stream)
	}
	return t
}

// tagColours are the terminal's colours that can be read on black and on white,
// red left out.
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
