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

// A Console takes gorun's own lines and the ranks' output. Writing to a slow reader never
// blocks the caller's goroutine.
type Console struct {
	out, err *sink
	files    []*sink // the ranks' files with --output, else nil
	People   bool    // a person reads the output: standard error is a terminal
	colour   bool    // use colours on terminals

	Broken    chan struct{} // closed when nobody reads gorun's output any more
	breakOnce sync.Once
	lost      atomic.Bool // some output could not be written

	lines   chan string   // gorun's own lines to be written; "" ends the writer
	written chan struct{} // closed when the writer has ended
}

// NewConsole opens the console. toFiles says that the ranks' output goes to files, see OpenFiles.
func NewConsole(stdout, stderr *os.File, toFiles bool) *Console {
	c := &Console{
		People:  terminal.IsTerminal(stderr) && !toFiles,
		colour:  os.Getenv("NO_COLOR") == "",
		Broken:  make(chan struct{}),
		lines:   make(chan string, 64),
		written: make(chan struct{}),
	}
	c.out, c.err = standardSinks(stdout, stderr, c.failed)
	go func() {
		defer close(c.written)
		for {
			text := <-c.lines
			if text == "" {
				return
			}
			c.err.say([]byte(text))
		}
	}()
	return c
}

// OpenFiles opens a file for each rank in the folder dir (--output). If dir is "", the output
// stays on the standard streams.
func (c *Console) OpenFiles(dir string, ranks int) (err error) {
	if dir != "" {
		c.files, err = rankFiles(dir, ranks, c.failed)
	}
	return err
}

// Say prints a line of gorun's own on standard error. If nobody reads them, all but a few lines
// are dropped.
func (c *Console) Say(format string, args ...any) {
	c.Write(c.Name() + ": " + fmt.Sprintf(format, args...) + "\n")
}

// Name returns gorun's name as it stands at the start of its own lines.
func (c *Console) Name() string {
	if c.colours("stderr") {
		return "\x1b[1;31mgorun\x1b[0m"
	}
	return "gorun"
}

// Write prints text, whole lines, on standard error.
func (c *Console) Write(text string) {
	select {
	case c.lines <- text:
	default:
	}
}

// Close closes the files and waits until gorun's own lines are written, a second at most.
// It returns the exit status for lost output, 0 if none was lost.
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
	if c.lost.Load() {
		return 1
	}
	return 0
}

// sink returns the sink of a rank's stream. alone is true if nothing else goes there.
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

// colours reports whether a stream of gorun may have colours.
func (c *Console) colours(stream string) bool {
	if !c.colour {
		return false
	}
	if stream == "stdout" {
		return c.files == nil && terminal.Draws(c.out.file)
	}
	return c.files == nil && terminal.Draws(c.err.file)
}

// failed notes that output cannot be written. If the reader has gone away, the job ends without
// a message, as a single process would. Another error is reported once for each file, and the
// job goes on.
func (c *Console) failed(name string, err error) {
	c.lost.Store(true)
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

// Columns returns how many columns a rank's standard error has on a terminal beside its
// tags, 0 if it does not go to a terminal.
func (c *Console) Columns(rank int, g Tagging) int {
	if !c.People || c.err.target.columns == nil {
		return 0
	}
	tag := g.of(rank, "stderr", false)
	return max(1, c.err.target.columns()-len(tag.append(nil, []byte{'\n'}, time.Now()))+1)
}
