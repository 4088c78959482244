package launcher

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/internal/depot"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/launcher/build"
	"github.com/gorun-spmd/gorun/launcher/doctor"
	"github.com/gorun-spmd/gorun/launcher/exit"
	"github.com/gorun-spmd/gorun/launcher/guardian"
	"github.com/gorun-spmd/gorun/launcher/handover"
	"github.com/gorun-spmd/gorun/launcher/hosts"
	"github.com/gorun-spmd/gorun/launcher/machine"
	"github.com/gorun-spmd/gorun/launcher/options"
	"github.com/gorun-spmd/gorun/launcher/stdio"
	"github.com/gorun-spmd/gorun/launcher/top"
)

// mainOfChild is the main function of the guardian, of its keeper and of a depot; ok is false if
// this process is none of them.
func mainOfChild(args []string) (status int, ok bool) {
	if status, ok := depot.Main(args); ok {
		return status, true
	}
	return guardian.Main(args)
}

func scaleCommand(args []string) int { return top.Scale(args, os.Stdout, os.Stderr) }

func topCommand(args []string) int { return top.Main(args, os.Stdin, os.Stdout, os.Stderr) }

func doctorCommand(args []string, stdout io.Writer) int {
	return doctor.Main(args, version(), stdout)
}

// launch finds or builds the programs, and has another launcher start them, or starts them here. A dry run
// is written to stdout.
func launch(o *options.Options, stdout io.Writer) (status int, err error) {
	c := stdio.NewConsole(os.Stdout, os.Stderr, o.Output != "")
	defer func() {
		if lost := c.Close(); status == 0 {
			status = lost
		}
	}()
	signals := make(chan os.Signal, 32)
	if err := o.CheckFiles(); err != nil {
		return 0, err
	}
	if l, ranks, ok := hosts.Starter(os.LookupEnv); ok {
		c.Say("%s has started gorun %d times, and each starts a job of its own; if that is not meant, leave %s out: "+
			"gorun finds the job's hosts and calls it", l, ranks, l)
	}
	o.TraceForReport()
	h, err := handover.New(o, c, signals)
	if err != nil {
		return 0, err
	}
	if h == nil && o.OwnTrace() {
		o.Trace = "" // gorun has the ranks' parts itself
	}
	if h != nil && o.Dashboard != "" {
		return 0, exit.With(2, errors.New("--dashboard: only for ranks that gorun starts itself, on this machine; "+
			"--report makes the page at the end"))
	}
	paths, err := build.Locate(o)
	if err != nil {
		return 0, err
	}
	listen(signals) // until here nothing was started or made
	err = (&build.Builder{Console: c, Signals: signals}).All(o, paths, stdout)
	switch {
	case err != nil:
		return 0, err
	case h != nil && o.DryRun:
		return 0, h.DryRun(paths, stdout)
	case h != nil:
		status, err := h.Run(paths)
		return pageOfTrace(status, err, o, c.Say)
	}
	return launchHere(o, paths, stdout, c, signals)
}

// launchHere makes the plan for ranks on this host, and carries it out.
func launchHere(o *options.Options, paths []string, stdout io.Writer, c *stdio.Console, signals chan os.Signal) (status int, err error) {
	if n := o.Size(); n > control.MaxRanks {
		return 0, exit.With(2, fmt.Errorf("-np: %d ranks; gorun starts at most %d on one host", n, control.MaxRanks))
	}
	m := machine.This(o.Bind != options.BindNone && o.Size() > 1)
	planFor := func(ranks int) *plan {
		if ranks == o.Size() {
			return newPlan(o, paths, m)
		}
		other := *o
		other.Apps = slices.Clone(o.Apps)
		other.Apps[0].Ranks = ranks
		return newPlan(&other, paths, m)
	}
	p := planFor(o.Size())
	if o.DryRun {
		p.write(stdout)
		return 0, nil
	}
	err = exit.CheckTasks("", o.Size(), exit.RankTasks)
	if err != nil && slices.ContainsFunc(paths, func(path string) bool { return !isRank(path) }) {
		err = exit.CheckTasks("", o.Size(), 1)
	}
	if err != nil {
		return 0, err
	}
	if err := c.OpenFiles(o.Output, o.Size()); err != nil {
		return 0, err
	}
	if o.ReportBindings {
		p.writeBindings(os.Stderr)
	}
	if len(p.ranks) > p.cores {
		c.Say("%d ranks share %s", len(p.ranks), ints.Counted(p.cores, "usable core"))
	}
	d, err := startDashboard(o, c.Say)
	if err != nil {
		return 0, err
	}
	defer d.close()
	return attempts(o, planFor, c, d, signals)
}

// listen sends the signals that the launcher answers, which until then have their
// default action. One that was ignored before, by nohup or a script's background, stays
// ignored.
func listen(signals chan os.Signal) {
	for _, s := range []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2,
		unix.SIGTSTP, unix.SIGCONT} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) // a write then returns EPIPE
}
