//go:build linux

package launcher

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/internal/mem"
	"github.com/gorun-spmd/gorun/internal/snapshot"
	"github.com/gorun-spmd/gorun/launcher/exit"
	"github.com/gorun-spmd/gorun/launcher/guardian"
	"github.com/gorun-spmd/gorun/launcher/options"
	"github.com/gorun-spmd/gorun/launcher/stdio"
	"github.com/gorun-spmd/gorun/launcher/supervisor"
	"github.com/gorun-spmd/gorun/launcher/terminal"
)

// An attempt is one start of the job, from making its shared memory to the death
// of its last process.
type attempt struct {
	opts    *options.Options
	plan    *plan
	number  int           // of restarts before
	id      string        // the job's name
	spent   time.Duration // by earlier attempts
	console *stdio.Console

	segment *control.Segment
	traces  []*os.File // by rank; nil: none is kept
	elastic *elastic   // nil: the job is not

	dashboard *dashboard // nil: there is none

	files   []uintptr // what the guardian inherits, by its descriptor
	theirs  []int     // our copies of what only the guardian needs
	pumps   []*stdio.Pump
	stderr  []*stdio.Pump // those of standard error, by rank
	pumping *stdio.Pumps
	relay   *stdio.Relay
	started time.Time
	kills   int // by the kernel, of processes of our control group, before: see mem.Kills
	reached int // the last step that a rank had begun in the end
	next    int // how many ranks the next attempt has

	suspended time.Duration // for which gorun was stopped
}

// run starts the job and returns when it is over and what report needs of its output
// is there. The segment stays open, for report, until end.
func (a *attempt) run(signals <-chan os.Signal) (*supervisor.Outcome, error) {
	a.started, a.kills = time.Now(), mem.Kills("")
	var err error
	a.segment, err = control.Create(len(a.plan.ranks), control.Options{Cores: a.plan.cores})
	if err != nil {
		return nil, exit.Remedied(err)
	}
	if err := a.openTraces(); err != nil {
		return nil, err
	}
	s, err := a.spec()
	if err != nil {
		a.closeTheirs()
		return nil, err
	}
	g, err := guardian.Start(a.files, s)
	a.closeTheirs()
	if err != nil {
		return nil, err
	}
	a.pumping = a.console.Start(a.pumps)
	if a.relay != nil {
		go a.relay.Run()
	}
	sup := &supervisor.Supervisor{
		Grace: a.opts.Grace, Timeout: a.opts.Timeout, Spent: a.spent,
		Events: g.Events, Send: g.Send, Signals: signals, Broken: a.console.Broken,
		Asked: a.asked, Ended: a.tell, Waiting: a.waiting, Say: a.console.Say,
		Suspend: supervisor.Suspend,
	}
	if a.elastic != nil {
		sup.Resize = a.resize
		if err := snapshot.Started(a.elastic.file, os.Getpid(), len(a.plan.ranks)); err != nil {
			return nil, err
		}
		if a.traces == nil {
			sup.Brief = elasticGrace
		}
	}
	w := a.newWatchdog(sup)
	sup.Look = func() ([]int, bool) { return a.look(w) }
	o := sup.Run(len(a.plan.ranks))
	if o.Reason == supervisor.Lost {
		guardian.Sweep(g.Since)
	}
	for _, p := range a.pumps {
		p.Drain()
	}
	a.pumping.Limit(o)
	a.pumping.Wait(o, signals, stdio.HeadlineTime)
	return o, nil
}

// end gives back what run left open.
func (a *attempt) end() {
	if a.segment != nil {
		_ = a.segment.Close()
	}
	a.closeTraces()
}

// tell lets the other ranks know how one ended.
func (a *attempt) tell(rank int, e *supervisor.End) {
	a.relay.Leave(rank)
	cause := ""
	if e.Bad() {
		cause = a.describe(e)
		if text, _ := a.segment.Error(rank); text != "" {
			cause = text
		}
	}
	if e.Asked && cause != "" {
		cause = job.Stopped + ": " + cause
	}
	a.segment.Ended(rank, cause)
}

// asked is the supervisor's: it finds a rank that a signal has asked to end.
func (a *attempt) asked() (rank int, sig syscall.Signal, ok bool) {
	for r := range a.plan.ranks {
		if sig, ok := a.segment.Asked(r); ok {
			return r, sig, true
		}
	}
	return 0, 0, false
}

// add hands fd on to the guardian and returns its number there.
func (a *attempt) add(fd int) int {
	a.files = append(a.files, uintptr(fd))
	return len(a.files) - 1
}

// spec opens what the ranks need and describes it.
func (a *attempt) spec() (*guardian.Spec, error) {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, exit.Remedied(fmt.Errorf("%s: %w", os.DevNull, err))
	}
	a.theirs = append(a.theirs, null)
	a.files = []uintptr{uintptr(null), uintptr(null), 2, 0} // 3 is the socket, see guardian.Start
	quiet := 0
	stdin, err := a.stdin()
	if err != nil {
		return nil, err
	}
	var segment []int
	for _, f := range a.segment.Files() {
		segment = append(segment, a.add(int(f.Fd())))
	}
	s := &guardian.Spec{Apps: a.plan.apps}
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
		snapshotFD := 0
		if a.elastic != nil {
			snapshotFD = 3 + len(files)
			files = append(files[:len(files):len(files)], a.add(int(a.elastic.file.Fd())))
		}
		contract := job.Job{
			ID: a.id, Attempt: a.number, ControlFD: 3, ArenaFD: 4, TraceFD: a.traceFD(), Columns: a.console.Columns(r, a.tagging()),
			SnapshotFD: snapshotFD,
		}
		s.Ranks = append(s.Ranks, guardian.Rank{
			App:     it.app,
			Env:     a.plan.env(r, contract, a.console.People),
			CPUs:    it.cpus,
			Stdio:   [3]int{in, out, err2},
			Inherit: files,
		})
	}
	s.Top = len(a.files)
	return s, nil
}

// tagging is what the command line asks for.
func (a *attempt) tagging() stdio.Tagging {
	return stdio.Tagging{Who: a.opts.Tag, When: a.opts.Timestamp}
}

// stdin opens the standard input of the ranks that have one and returns its
// descriptor in the guardian. A file or a pipe is handed on as it is. It is for the
// first attempt alone: what that has read is gone.
func (a *attempt) stdin() (map[int]int, error) {
	if a.number > 0 {
		return nil, nil
	}
	var ranks []int
	switch a.opts.Stdin {
	case "none":
		return nil, nil
	case "all":
		for r := range a.plan.ranks {
			ranks = append(ranks, r)
		}
	default:
		r, err := strconv.Atoi(a.opts.Stdin)
		if err != nil {
			return nil, err
		}
		ranks = []int{r}
	}
	if len(ranks) == 1 && !terminal.IsTerminal(os.Stdin) {
		return map[int]int{ranks[0]: a.add(int(os.Stdin.Fd()))}, nil
	}
	fds := map[int]int{}
	a.relay = stdio.NewRelay()
	for _, r := range ranks {
		end, err := a.relay.Add(r)
		if err != nil {
			return nil, err
		}
		a.theirs = append(a.theirs, end)
		fds[r] = a.add(end)
	}
	return fds, nil
}

// stream opens the pipe of one stream of one rank and returns its write end's
// descriptor in the guardian.
func (a *attempt) stream(r int, name string) (int, error) {
	from, end, err := stdio.Pipe(name)
	if err != nil {
		return 0, err
	}
	a.theirs = append(a.theirs, end)
	p := a.console.RankPump(from, r, len(a.plan.ranks), name, a.tagging())
	if name == "stderr" {
		a.stderr = append(a.stderr, p)
	}
	a.pumps = append(a.pumps, p)
	return a.add(end), nil
}

// closeTheirs closes our copies of what only the guardian needs.
func (a *attempt) closeTheirs() {
	for _, fd := range a.theirs {
		unix.Close(fd)
	}
	a.theirs = nil
}
