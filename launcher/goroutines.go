package launcher

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/launcher/build"
	"github.com/gorun-spmd/gorun/launcher/exit"
	"github.com/gorun-spmd/gorun/launcher/options"
	"github.com/gorun-spmd/gorun/launcher/phrase"
)

// startGoroutines starts the program of o as one process whose goroutines are the ranks
// (see runtime.Main), and returns its exit status. It is for systems on which gorun starts
// no ranks as processes; system is the name of this one. What it says goes to stderr, a dry
// run to stdout.
func startGoroutines(o *options.Options, system string, stdout, stderr io.Writer) (status int, err error) {
	if flag := needsProcesses(o); flag != "" {
		return 0, exit.With(2, fmt.Errorf("%s: only where each rank is a process, on Linux; on %s ranks are goroutines of one", flag, system))
	}
	if err := o.CheckFiles(); err != nil {
		return 0, err
	}
	o.TraceForReport()
	paths, err := build.Locate(o)
	if err != nil {
		return 0, err
	}
	a := &o.Apps[0]
	vars := a.Vars
	if a.Ranks > 1 {
		vars = append(vars, job.GoroutinesVar+"="+strconv.Itoa(a.Ranks))
	}
	if o.Trace != "" {
		vars = append(vars, job.TraceVar+"="+o.Trace)
	}
	path := paths[0]
	if a.Built {
		folder, err := os.MkdirTemp("", "gorun-build-")
		if err != nil {
			return 0, fmt.Errorf("no temporary folder: %w", err)
		}
		defer os.RemoveAll(folder)
		path = filepath.Join(folder, "program.exe") // Windows wants the ending, others do not mind
		argv := build.GoCommand(a, "build", "-o", path)
		if o.DryRun {
			path = build.KeptAs(a, 0)
			fmt.Fprintln(stdout, phrase.Quote(build.GoCommand(a, "build", "-o", path)))
		} else if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			fmt.Fprint(stderr, string(out))
			return 0, fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
		}
	}
	if o.DryRun {
		fmt.Fprintln(stdout, phrase.Quote(append([]string{"env"}, append(vars, append([]string{path}, a.Args...)...)...)))
		return 0, nil
	}
	if a.Ranks > 1 {
		fmt.Fprintf(stderr, "gorun: on %s the %d ranks are goroutines of one process, if the program calls runtime.Main\n", system, a.Ranks)
	}
	cmd := exec.Command(path, a.Args...)
	cmd.Args[0] = a.Argv0(path)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env, cmd.Dir = options.Environment(os.Environ(), vars), a.Dir
	status, err = superviseOne(cmd, o)
	return pageOfTrace(status, err, o, func(format string, args ...any) {
		fmt.Fprintf(stderr, "gorun: "+format+"\n", args...)
	})
}

// needsProcesses returns a flag of o that only ranks which are processes have, "" if there
// is none.
func needsProcesses(o *options.Options) string {
	for _, f := range []struct {
		given bool
		name  string
	}{
		{len(o.Apps) > 1, "several programs, with \":\""},
		{o.Hosts.Given() || o.Hosts.Oversubscribe, "--hostfile, --host, --via and --oversubscribe"},
		{o.Stdin != "0", "--stdin"},
		{o.Tag, "--tag-output"},
		{o.Timestamp, "--timestamp-output"},
		{o.Output != "", "--output"},
		{o.Bind != "", "--bind-to"},
		{o.MapBy != options.MapCore, "--map-by"},
		{o.ReportBindings, "--report-bindings"},
		{o.HangGiven, "--hang-timeout"},
		{o.OnDeadlock != options.DeadlockEnds, "--on-deadlock"},
		{o.Restarts > 0, "--max-restarts"},
		{o.Elastic != "", "--elastic"},
		{o.Dashboard != "", "--dashboard"},
	} {
		if f.given {
			return f.name
		}
	}
	return ""
}

// superviseOne runs the process of all ranks. Ctrl-C comes to it from the terminal, so that
// it has gorun wait for it; SIGTERM is passed on. After --timeout it is asked to end, and
// killed after --grace.
func superviseOne(cmd *exec.Cmd, o *options.Options) (status int, err error) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, exit.Unusable("%s: %v", cmd.Args[0], err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop := func() {
		if cmd.Process.Signal(syscall.SIGTERM) != nil { // Windows has no such signal
			_ = cmd.Process.Kill()
		}
	}
	var looks, kill <-chan time.Time
	if o.Timeout > 0 {
		ticker := time.NewTicker(clockInterval)
		defer ticker.Stop()
		looks = ticker.C
	}
	left := limit{left: o.Timeout, last: time.Now()}
	own := 0 // the exit status, if gorun ends the job
	for {
		select {
		case now := <-looks:
			if left.over(now) {
				looks, own, kill = nil, exit.TimedOut, time.After(o.Grace)
				stop()
			}
		case <-kill:
			_ = cmd.Process.Kill()
		case s := <-signals:
			if s == syscall.SIGTERM {
				own = 128 + int(syscall.SIGTERM)
				stop()
			}
		case <-ended: // its state says how
			if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
				return cmp.Or(own, 128+int(ws.Signal())), nil
			}
			return cmp.Or(own, cmd.ProcessState.ExitCode()), nil
		}
	}
}

// clockInterval is the time between two looks at the clock. If many of them have passed gorun was stopped meanwhile.
const clockInterval = 100 * time.Millisecond

// A limit is what is left of --timeout, without the time for which gorun was stopped, by Ctrl-Z or another signal.
type limit struct {
	left time.Duration
	last time.Time // when it was last looked at
}

// over notes the time, and reports whether nothing is left.
func (l *limit) over(now time.Time) bool {
	if d := now.Sub(l.last); d < 10*clockInterval {
		l.left -= d
	}
	l.last = now
	return l.left <= 0
}
