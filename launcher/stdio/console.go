//go:build linux

package stdio

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/launcher/exit"
	"github.com/gorun-spmd/gorun/launcher/terminal"
)

// A Console is where gorun's own words and the ranks' output go. Nothing that may
// wait for a slow reader happens on the caller's goroutine.
type Console struct {
	out, err *sink
	files    []*sink // --output; nil else
	People   bool    // standard error is a terminal
	colour   bool    // on terminals

	Broken    chan struct{} // closed when nobody reads gorun's output any more
	breakOnce sync.Once
	lostIt    atomic.Bool // some output could not be written

	words   chan string   // "" ends the writer
	written chan struct{} // closed when it has ended
}

// NewConsole opens the console. toFiles says that the ranks' output goes to files, see OpenFiles.
func NewConsole(stdout, stderr *os.File, toFiles bool) *Console {
	c := &Console{
		People:  terminal.IsTerminal(stderr) && !toFiles,
		colour:  os.Getenv("NO_COLOR") == "",
		Broken:  make(chan struct{}),
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
			c.err.say([]byte(text))
		}
	}()
	return c
}

// OpenFiles opens a file a rank in the folder dir (--output); "" leaves the output on the
// standard streams.
func (c *Console) OpenFiles(dir string, ranks int) (err error) {
	if dir != "" {
		c.files, err = rankFiles(dir, ranks, c.failed)
	}
	return err
}

// Say prints a line of gorun's own on standard error. If nobody reads there, lines
// beyond a few are dropped.
func (c *Console) Say(format string, args ...any) {
	c.Write(c.Name() + ": " + fmt.Sprintf(format, args...) + "\n")
}

// Name is gorun's, at the start of its own lines.
func (c *Console) Name() string {
	if c.colours("stderr") {
		return "\x1b[1;31mgorun\x1b[0m"
	}
	return "gorun"
}

// Write prints text, whole lines, on standard error.
func (c *Console) Write(text string) {
	select {
	case c.words <- text:
	default:
	}
}

// Close closes files and waits, a moment at most, until what was said is written.
// It returns the exit status that lost output asks for: 0 if there was none.
func (c *Console) Close() int {
	for _, s := range c.files {
		if err := s.file.Close(); err != nil {
			c.failed(s.name, err)
		}
	}
	c.Write("")
	select {
	case <-c.written:
	case <-time.After(time.Second):
	}
	select {
	case <-c.Broken:
		return exit.Closed
	default:
	}
	if c.lostIt.Load() {
		return 1
	}
	return 0
}

// sink returns where a rank's stream goes, and whether nothing else goes there.
func (c *Console) sink(rank int, stream string, ranks int) (s *sink, alone bool) {
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
func (c *Console) colours(stream string) bool {
	if !c.colour {
		return false
	}
	if stream == "stdout" {
		return c.files == nil && terminal.IsTerminal(c.out.file)
	}
	return c.files == nil && terminal.IsTerminal(c.err.file)
}

// failed takes note of output that cannot be written. A reader that went away ends
// the job without a word, as it would end a single process; anything else is said
// once a file, and the job goes on.
func (c *Console) failed(name string, err error) {
	c.lostIt.Store(true)
	if errors.Is(err, unix.EPIPE) {
		c.breakOnce.Do(func() { close(c.Broken) })
		return
	}
	var cause *os.PathError
	if errors.As(err, &cause) {
		err = cause.Err
	}
	c.Say("%s: %v; what the ranks write there is lost from here on", name, err)
}

// Columns returns how many columns of a terminal a rank's standard error has beside its
// tags, 0 if it does not end up on one.
func (c *Console) Columns(rank int, g Tagging) int {
	if !c.People || c.err.target.columns == nil {
		return 0
	}
	tag := g.of(rank, "stderr", false)
	return max(1, c.err.target.columns()-len(tag.append(nil, []byte{'\n'}, time.Now()))+1)
}
