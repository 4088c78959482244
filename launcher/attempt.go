package launcher

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/internal/job"
)

// An attempt is one start of the job, from making its shared memory to the death
// of its last process.
type attempt struct {
	opts    *options
	plan    *plan
	number  int           // of restarts before
	id      string        // the job's name
	spent   time.Duration // by earlier attempts
	console *console

	segment *control.Segment
	traces  []*os.File // by rank; nil: none is kept
	files   []uintptr  // what the guardian inherits, by its descriptor
	theirs  []int      // our copies of what only the guardian needs
	pumps   []*pump
	tails   []*tail // standard error, by rank
	relay   *relay
	started time.Time
}

// run starts the job and returns when it is over and its output written. The
// segment stays open, for report, until end.
func (a *attempt) run(signals <-chan os.Signal) (*outcome, error) {
	a.started = time.Now()
	var err error
	a.segment, err = control.Create(len(a.plan.ranks), control.Options{Cores: a.plan.cores})
	if err != nil {
		return nil, remedied(err)
	}
	if err := a.openTraces(); err != nil {
		return nil, err
	}
	s, err := a.spec()
	if err != nil {
		a.closeTheirs()
		return nil, err
	}
	g, err := startGuardian(a.files, s)
	a.closeTheirs()
	if err != nil {
		return nil, err
	}
	var pumping sync.WaitGroup
	for _, p := range a.pumps {
		pumping.Go(p.run)
	}
	if a.relay != nil {
		go a.relay.run()
	}
	sup := &supervisor{
		grace: a.opts.grace, timeout: a.opts.timeout, spent: a.spent,
		events: g.events, send: g.send, signals: signals, broken: a.console.broken,
		ended: a.tell, waiting: a.waiting, say: a.console.say,
		suspend: suspend,
	}
	w := a.newWatchdog(sup)
	sup.look = func() ([]int, bool) { return a.look(w) }
	o := sup.run(len(a.plan.ranks))
	if o.reason == lost {
		g.sweep()
	}
	for _, p := range a.pumps {
		p.drain()
	}
	a.awaitOutput(&pumping, o, signals)
	return o, nil
}

// end gives back what run left open.
func (a *attempt) end() {
	if a.segment != nil {
		_ = a.segment.Close()
	}
	a.closeTraces()
}

// awaitOutput waits until everything the ranks wrote is written, or the user has
// had enough.
func (a *attempt) awaitOutput(pumping *sync.WaitGroup, o *outcome, signals <-chan os.Signal) {
	done := make(chan struct{})
	go func() {
		pumping.Wait()
		close(done)
	}()
	var limit <-chan time.Time
	switch {
	case o.killed && o.reason == interrupted:
		limit = time.After(200 * time.Millisecond)
	case o.reason == interrupted || o.reason == lost:
		limit = time.After(time.Second)
	}
	for {
		select {
		case <-done:
			return
		case <-limit:
			return
		case sig := <-signals:
			switch sig {
			case unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT:
				o.signal = cmp.Or(o.signal, sig.(syscall.Signal))
				if o.reason == finished {
					o.reason = interrupted
				}
				return
			case unix.SIGTSTP:
				suspend()
			}
		}
	}
}

// tell lets the other ranks know how one ended.
func (a *attempt) tell(rank int, e *end) {
	cause := ""
	if e.bad() {
		cause = describe(e.status)
		if text, _ := a.segment.Error(rank); text != "" {
			cause = text
		}
	}
	if e.asked && cause != "" {
		cause = job.Stopped + ": " + cause
	}
	a.segment.Ended(rank, cause)
}

// add hands fd on to the guardian and returns its number there.
func (a *attempt) add(fd int) int {
	a.files = append(a.files, uintptr(fd))
	return len(a.files) - 1
}

// spec opens what the ranks need and describes it.
func (a *attempt) spec() (*spec, error) {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, remedied(fmt.Errorf("%s: %w", os.DevNull, err))
	}
	a.theirs = append(a.theirs, null)
	a.files = []uintptr{uintptr(null), uintptr(null), 2, 0} // 3 is the socket, see startGuardian
	quiet := 0
	stdin, err := a.stdin()
	if err != nil {
		return nil, err
	}
	var segment []int
	for _, f := range a.segment.Files() {
		segment = append(segment, a.add(int(f.Fd())))
	}
	s := &spec{Apps: a.plan.apps}
	for r, it := range a.plan.ranks {
		out, err := a.stream(r, "stdout")
		if err != nil {
			return nil, err
		}
		err2, err := a.stream(r, "stderr")
		if err != nil {
			return nil, err
		}
		in, ok := stdin[r]
		if !ok {
			in = quiet
		}
		files := segment
		if a.traces != nil {
			files = append(files[:len(files):len(files)], a.add(int(a.traces[r].Fd())))
		}
		contract := job.Job{
			ID: a.id, Attempt: a.number, ControlFD: 3, ArenaFD: 4, TraceFD: a.traceFD(), Columns: a.columns(r),
		}
		s.Ranks = append(s.Ranks, rank{
			App:     it.app,
			Env:     a.plan.env(r, contract, a.console.people),
			CPUs:    it.cpus,
			Stdio:   [3]int{in, out, err2},
			Inherit: files,
		})
	}
	s.Top = len(a.files)
	return s, nil
}

// columns returns how many columns of a terminal a rank's standard error has,
// 0 if it does not end up on one.
func (a *attempt) columns(r int) int {
	if !a.console.people || a.console.err.target.columns == nil {
		return 0
	}
	tag := newTag(a.opts, r, "stderr", false)
	return max(1, a.console.err.target.columns()-len(tag.append(nil, []byte{'\n'}, time.Now()))+1)
}

// stdin opens the standard input of the ranks that have one and returns its
// descriptor in the guardian. A file or a pipe is handed on as it is. It is for the
// first attempt alone: what that has read is gone.
func (a *attempt) stdin() (map[int]int, error) {
	if a.number > 0 {
		return nil, nil
	}
	var ranks []int
	switch a.opts.stdin {
	case "none":
		return nil, nil
	case "all":
		for r := range a.plan.ranks {
			ranks = append(ranks, r)
		}
	default:
		r, err := strconv.Atoi(a.opts.stdin)
		if err != nil {
			return nil, err
		}
		ranks = []int{r}
	}
	if len(ranks) == 1 && !isTerminal(os.Stdin) {
		return map[int]int{ranks[0]: a.add(int(os.Stdin.Fd()))}, nil
	}
	fds := map[int]int{}
	a.relay = &relay{from: os.Stdin}
	for _, r := range ranks {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			return nil, noPipe(err)
		}
		a.theirs = append(a.theirs, p[0])
		a.relay.to = append(a.relay.to, os.NewFile(uintptr(p[1]), "stdin"))
		fds[r] = a.add(p[0])
	}
	return fds, nil
}

// stream opens the pipe of one stream of one rank and returns its write end's
// descriptor in the guardian.
func (a *attempt) stream(r int, name string) (int, error) {
	from, end, err := pipe(name)
	if err != nil {
		return 0, err
	}
	a.theirs = append(a.theirs, end)
	m := &pump{rank: r, from: from, lines: splitter{limit: maxLine}}
	m.to, m.raw = a.console.sink(r, name, len(a.plan.ranks))
	m.tag = newTag(a.opts, r, name, a.console.colours(name))
	if name == "stderr" {
		m.tail = new(tail)
		a.tails = append(a.tails, m.tail)
	}
	m.raw = m.raw && m.tag.empty()
	m.live = !m.raw && m.to.target.columns != nil
	a.pumps = append(a.pumps, m)
	return a.add(end), nil
}

// pipe makes a pipe whose read end does not block and can be waited for. Its write
// end is as a child expects it.
func pipe(name string) (from *os.File, end int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, 0, noPipe(err)
	}
	if err := unix.SetNonblock(p[0], true); err != nil {
		return nil, 0, noPipe(err)
	}
	return os.NewFile(uintptr(p[0]), name), p[1], nil
}

func noPipe(err error) error { return remedied(fmt.Errorf("opening a pipe: %w", err)) }

// remedied adds what to do to an error that comes from a limit on this process.
func remedied(err error) error {
	switch {
	case errors.Is(err, unix.EMFILE):
		return fmt.Errorf("%w; raise the limit on open files (ulimit -n) or start fewer ranks", err)
	case errors.Is(err, unix.EFBIG):
		return fmt.Errorf("%w; raise the limit on the size of files (ulimit -f)", err)
	case errors.Is(err, unix.EAGAIN):
		return fmt.Errorf("%w; raise the limit on processes (ulimit -u, or the container's)", err)
	}
	return err
}

// closeTheirs closes our copies of what only the guardian needs.
func (a *attempt) closeTheirs() {
	for _, fd := range a.theirs {
		unix.Close(fd)
	}
	a.theirs = nil
}

// suspend stops this process as the terminal's Ctrl-Z would have, until SIGCONT.
func suspend() {
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, unix.SIGCONT)
	defer signal.Stop(resumed)
	_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
	<-resumed
}
