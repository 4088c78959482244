package launcher

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A console is where gorun's own words and the ranks' output go. Nothing that may
// wait for a slow reader happens on the caller's goroutine.
type console struct {
	out, err *sink
	files    []*sink // --output; nil else
	people   bool    // standard error is a terminal
	colour   bool    // on terminals

	broken    chan struct{} // closed when nobody reads gorun's output any more
	breakOnce sync.Once
	lostIt    atomic.Bool // some output could not be written

	words   chan string   // "" ends the writer
	written chan struct{} // closed when it has ended
}

// newConsole opens the console that o asks for.
func newConsole(o *options, stdout, stderr *os.File) *console {
	c := &console{
		people:  isTerminal(stderr) && o.output == "",
		colour:  os.Getenv("NO_COLOR") == "",
		broken:  make(chan struct{}),
		words:   make(chan string, 64),
		written: make(chan struct{}),
	}
	c.out, c.err = standardSinks(stdout, stderr, c.failed)
	go func() {
		defer close(c.written)
		for {
			text := <-c.words
			if text == "" {
				return
			}
			c.err.write([]byte(text), false)
		}
	}()
	return c
}

// openFiles opens the files of --output, if it was given.
func (c *console) openFiles(o *options) (err error) {
	if o.output != "" {
		c.files, err = rankFiles(o.output, o.size(), c.failed)
	}
	return err
}

// say prints a line of gorun's own on standard error. If nobody reads there, lines
// beyond a few are dropped.
func (c *console) say(format string, args ...any) {
	c.write(c.name() + ": " + fmt.Sprintf(format, args...) + "\n")
}

// name is gorun's, at the start of its own lines.
func (c *console) name() string {
	if c.colours("stderr") {
		return "\x1b[1;31mgorun\x1b[0m"
	}
	return "gorun"
}

// write prints text, whole lines, on standard error.
func (c *console) write(text string) {
	select {
	case c.words <- text:
	default:
	}
}

// close closes files and waits, a moment at most, until what was said is written.
// It returns the exit status that lost output asks for: 0 if there was none.
func (c *console) close() int {
	for _, s := range c.files {
		if err := s.file.Close(); err != nil {
			c.failed(s.name, err)
		}
	}
	c.write("")
	select {
	case <-c.written:
	case <-time.After(time.Second):
	}
	select {
	case <-c.broken:
		return statusClosed
	default:
	}
	if c.lostIt.Load() {
		return 1
	}
	return 0
}

// statusClosed is the exit status when nobody reads gorun's output any more: that
// of a process that wrote to such a pipe.
const statusClosed = 128 + int(unix.SIGPIPE)

// sink returns where a rank's stream goes, and whether nothing else goes there.
func (c *console) sink(rank int, stream string, ranks int) (s *sink, alone bool) {
	switch {
	case c.files != nil:
		return c.files[rank], false
	case stream == "stdout":
		return c.out, ranks == 1
	default:
		return c.err, ranks == 1
	}
}

// colours reports whether a stream of gorun may have them.
func (c *console) colours(stream string) bool {
	if !c.colour {
		return false
	}
	if stream == "stdout" {
		return c.files == nil && isTerminal(c.out.file)
	}
	return c.files == nil && isTerminal(c.err.file)
}

// failed takes note of output that cannot be written. A reader that went away ends
// the job without a word, as it would end a single process; anything else is said
// once a file, and the job goes on.
func (c *console) failed(name string, err error) {
	c.lostIt.Store(true)
	if errors.Is(err, unix.EPIPE) {
		c.breakOnce.Do(func() { close(c.broken) })
		return
	}
	var cause *os.PathError
	if errors.As(err, &cause) {
		err = cause.Err
	}
	c.say("%s: %v; what the ranks write there is lost from here on", name, err)
}
