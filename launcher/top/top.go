//go:build linux

package top

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/launcher/options"
	"github.com/gorun-spmd/gorun/launcher/proc"
	"github.com/gorun-spmd/gorun/launcher/terminal"
)

const topUsage = `usage: gorun top [-once] [JOB]

Shows what each rank of a running job does: its state, CPU, the share of its time
in which it waited for other ranks, memory (its share of shared memory included),
the step that the program has told (runtime.SetStep), how many collectives it has
called, how many bytes it has handed to them, and how many a second now; and, if it
waits in one, which, for how long, and where in its source.

JOB is the process id of the job's gorun; it may be left out if only one runs.
On a terminal the picture is drawn anew each second; keys:

  r c m b w   sort by rank, CPU, memory, bytes a second, time of waiting
  q           quit

  -once     print it once; so too if standard output is no terminal
`

// topInterval is the time between two pictures.
const topInterval = time.Second

// Main is the command gorun top.
func Main(args []string, stdin, stdout *os.File, stderr io.Writer) int {
	f := flag.NewFlagSet("gorun top", flag.ContinueOnError)
	once := f.Bool("once", false, "")
	if status, done := options.ParseCommand(f, args, 1, topUsage, stdout, stderr); done {
		return status
	}
	j, err := choose(f.Arg(0), Jobs())
	if err == nil {
		err = j.attach()
	}
	if err != nil {
		fmt.Fprintf(stderr, "gorun top: %v\n", err)
		return 1
	}
	defer j.detach()
	if *once || !terminal.Draws(stdout) {
		fmt.Fprintln(stdout, strings.Join(append([]string{j.title()}, topTable(j.firstView())...), "\n"))
		return 0
	}
	return (&topScreen{job: j, out: stdout, keys: stdin, order: 'r'}).run()
}

// choose returns the job whose launcher has the process id name. If name is "", it returns the
// only running job.
func choose(name string, running []int) (*runningJob, error) {
	if name != "" {
		pid, err := strconv.Atoi(name)
		if err != nil || pid < 1 {
			return nil, fmt.Errorf("%q is not the process id of a gorun", name)
		}
		return newJob(pid), nil
	}
	switch len(running) {
	case 0:
		return nil, errors.New("no job of yours runs on this machine whose ranks gorun has started itself")
	case 1:
		return newJob(running[0]), nil
	}
	var b strings.Builder
	b.WriteString("several jobs run; name one:")
	for _, pid := range running {
		fmt.Fprintf(&b, "\n  %d  %s", pid, commandLine(pid))
	}
	return nil, errors.New(b.String())
}

func newJob(launcher int) *runningJob {
	return &runningJob{launcher: launcher, command: commandLine(launcher)}
}

// firstView looks twice, because rates need two looks.
func (j *runningJob) firstView() []rankView {
	j.view()
	time.Sleep(topInterval / 4)
	return j.view()
}

// title returns the line above the table.
func (j *runningJob) title() string {
	return fmt.Sprintf("job %d: %s, %s", j.launcher, ints.Counted(j.segment.Ranks(), "rank"), j.command)
}

// A topScreen shows a job on a terminal until the job ends or the user quits.
type topScreen struct {
	job   *runningJob
	out   *os.File
	keys  *os.File
	order byte
}

// The codes that make a terminal show another screen, and go back to the first.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
)

// run returns the exit status.
func (s *topScreen) run() int {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGWINCH)
	defer signal.Stop(signals)
	pressed := make(chan byte)
	if terminal.IsTerminal(s.keys) {
		before, err := term.MakeRaw(int(s.keys.Fd()))
		if err == nil {
			defer func() { _ = term.Restore(int(s.keys.Fd()), before) }()
			go s.read(pressed)
		}
	}
	fmt.Fprint(s.out, enterScreen)
	farewell := ""
	defer func() { fmt.Fprint(s.out, leaveScreen+farewell) }()
	tick := time.NewTicker(topInterval)
	defer tick.Stop()
	views := s.job.firstView()
	for {
		s.draw(views)
		select {
		case <-tick.C:
			if err := s.job.attach(); err != nil {
				if p, ok := proc.Read(s.job.launcher, make([]byte, 1024)); ok && p.State != 'Z' {
					continue // between two attempts
				}
				farewell = fmt.Sprintf("job %d has ended\r\n", s.job.launcher)
				return 0
			}
			views = s.job.view()
		case key := <-pressed:
			switch key {
			case 'q', 'Q', 3, 4: // Ctrl-C, Ctrl-D
				return 0
			case 'r', 'c', 'm', 'b', 'w':
				s.order = key
			}
		case sig := <-signals:
			if sig != unix.SIGWINCH {
				return 128 + int(sig.(unix.Signal))
			}
		}
	}
}

// read passes on keys.
func (s *topScreen) read(pressed chan<- byte) {
	buf := make([]byte, 1)
	for {
		if n, err := s.keys.Read(buf); n == 0 || err != nil {
			return
		}
		pressed <- buf[0]
	}
}

// draw fills the screen with as many ranks as fit.
func (s *topScreen) draw(views []rankView) {
	columns, rows, err := term.GetSize(int(s.out.Fd()))
	if err != nil || columns <= 0 || rows <= 0 {
		columns, rows = 80, 24
	}
	sortViews(views, s.order)
	lines := append([]string{s.job.title(), topKeys}, topTable(views)...)
	if more := len(lines) - rows; more > 0 {
		lines = append(lines[:max(0, rows-1)], fmt.Sprintf("… %d more", more+1))
	}
	screen := []byte("\x1b[H")
	for i, line := range lines {
		if i > 0 {
			screen = append(screen, "\r\n"...)
		}
		screen = append(terminal.Fit(screen, []byte(line), columns), terminal.ClearToEnd...)
	}
	_, _ = s.out.Write(append(screen, "\x1b[J"...))
}
