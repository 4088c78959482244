//go:build linux

package handover

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/internal/depot"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/launcher/guardian"
	"github.com/gorun-spmd/gorun/launcher/hosts"
	"github.com/gorun-spmd/gorun/launcher/machine"
	"github.com/gorun-spmd/gorun/launcher/options"
	"github.com/gorun-spmd/gorun/launcher/stdio"
	"github.com/gorun-spmd/gorun/launcher/supervisor"
	"github.com/gorun-spmd/gorun/launcher/terminal"
)

// A Handover is a job that another launcher starts. It is one child process under
// a guardian, as a rank is, so that the same signals, limits and exit statuses
// hold and nothing of it is left on this host.
type Handover struct {
	opts      *options.Options
	list      hostList
	launcher  installed
	mpi       string // srun's --mpi
	job       string // the name of what srun starts; "": a dry run
	remote    bool   // some host is another one
	cores     int
	console   *stdio.Console
	signals   <-chan os.Signal
	words     *words // nil: the ranks' output goes elsewhere
	failed    int    // looks since a rank has told that it failed
	unplaced  int    // looks since some ranks have been placed, and not all
	lingered  int    // looks since all ranks have ended well
	unreached int    // looks since ssh has said that it does not reach a host

	elastic *elastic      // nil: the job is not
	number  int           // of restarts before
	spent   time.Duration // by earlier attempts

	suspended time.Duration // for which gorun was stopped in them
}

// New says whether another launcher is to start the job, and which. It is
// nil if gorun starts the ranks itself.
func New(o *options.Options, c *stdio.Console, signals <-chan os.Signal) (*Handover, error) {
	h, err := chosen(o, c, signals, machine.This(false), thisFinder(), os.LookupEnv)
	if h != nil {
		ranksWriteTrace(o)
	}
	return h, err
}

// chosen is New on the machine m, with the launchers of f and the environment env.
func chosen(o *options.Options, c *stdio.Console, signals <-chan os.Signal, m machine.Machine, f finder,
	env func(string) (string, bool)) (*Handover, error) {
	list, err := findHosts(&o.Hosts, env)
	if err != nil {
		return nil, err
	}
	for _, w := range list.warnings {
		c.Say("%v", w)
	}
	remote := !list.onlyHere(m.Host)
	if !remote {
		if err := cmp.Or(list.fit(o, m.Cores, ""), o.CheckRanks()); err != nil || o.Hosts.Via == "" {
			return nil, err
		}
	}
	if o.Restarts > 0 && o.Output != "" {
		return nil, fmt.Errorf("--max-restarts where another launcher starts the ranks: with --output they cannot tell gorun " +
			"what there is to resume from; leave one of the two out")
	}
	found, err := f.choose(o.Hosts.Via, list.system)
	if err != nil {
		return nil, err
	}
	if o.Elastic != "" {
		if err := elasticFits(o, remote, found.Launcher, env); err != nil {
			return nil, err
		}
		list.merge()
	}
	if remote {
		list.count(found.Launcher, said)
		if err := cmp.Or(list.fit(o, 0, found.String()), o.CheckRanks()); err != nil {
			return nil, err
		}
	}
	if o.DeadlockSet {
		c.Say("--on-deadlock has no effect: %s starts the ranks, and gorun does not see what they wait for", found)
	}
	return &Handover{opts: o, list: list, launcher: found, mpi: f.mpi(found.Launcher, env, said), remote: remote, cores: m.Cores,
		console: c, signals: signals}, nil
}

// plan returns what to execute for the programs at paths. folder is where files of
// the launcher are to be.
func (h *Handover) plan(paths []string, folder string) (hosts.Handover, error) {
	o := h.opts
	by, err := hosts.ParseMapBy(o.MapBy)
	if err != nil {
		return hosts.Handover{}, fmt.Errorf("--map-by %s: with another launcher give slot or node", o.MapBy)
	}
	j := hosts.Job{
		Hosts:   h.list.hosts,
		Options: hosts.Options{By: by, Oversubscribe: o.Hosts.Oversubscribe, Cores: h.cores},
		Program: h.launcher.program, Folder: folder, Root: os.Geteuid() == 0,
		Bind: o.Bind, ReportBindings: o.ReportBindings, Stdin: h.stdin(), Typed: terminal.IsTerminal(os.Stdin), TagOutput: o.Tag,
		MPI: h.mpi, Name: h.job,
	}
	if h.elastic != nil {
		j.Hosts = h.elastic.hosts
	}
	if h.list.hosts == nil && o.Size() > h.cores {
		j.Oversubscribe = true // as gorun itself on one host
	}
	if o.Output != "" {
		if j.Output, err = options.Absolute(o.Output); err != nil {
			return hosts.Handover{}, err
		}
	}
	for i, a := range o.Apps {
		dir := a.Dir
		// Named in any case: a launcher that lacks it on a host would run the ranks elsewhere.
		if dir != "" || h.remote || h.shellWaits() {
			if dir, err = options.Absolute(dir); err != nil {
				return hosts.Handover{}, err
			}
		}
		argv, vars := append([]string{paths[i]}, a.Args...), a.Vars
		if h.throughShell() {
			argv, dir = h.started(dir, argv)
		}
		if name := h.launcher.JobNameVar; h.job != "" && name != "" && os.Getenv(name) != "" {
			argv = append([]string{"env", name + "=" + os.Getenv(name)}, argv...)
		}
		if h.remote {
			vars = slices.Concat(vars, h.hostTimeout(vars))
		}
		vars = slices.Concat(vars, h.hangTimeout(vars))
		if h.words != nil {
			vars = append(slices.Clone(vars), job.WordVar+"="+h.words.token)
		}
		switch {
		case h.elastic != nil:
			vars = append(slices.Clone(vars), depot.Var) // its value is no argument, which all users could see
		case h.number > 0:
			vars = append(slices.Clone(vars), job.AttemptVar+"="+strconv.Itoa(h.number))
		}
		j.Apps = append(j.Apps, hosts.App{Ranks: a.Ranks, Argv: argv, Dir: dir, Vars: vars})
	}
	plan, err := hosts.NewHandover(h.launcher.Launcher, j)
	return plan, hosts.Reason(err)
}

// hostTimeout returns the variable by which ranks end that are cut off from others, unless
// vars has it. It is the caller's own, if there is one.
func (h *Handover) hostTimeout(vars []string) []string {
	value, given := os.LookupEnv(job.HostTimeoutVar)
	switch {
	case has(vars, job.HostTimeoutVar):
		return nil
	case h.opts.HangTimeout == 0:
		value = "0"
	case !given:
		value = hostLimit.String()
	}
	return []string{job.HostTimeoutVar + "=" + value}
}

// hangTimeout returns the variable by which rank 0 ends a job in which nothing moves, unless vars has it or the default holds.
func (h *Handover) hangTimeout(vars []string) []string {
	value, given := os.LookupEnv(job.HangTimeoutVar)
	switch {
	case has(vars, job.HangTimeoutVar):
		return nil
	case h.opts.HangGiven:
		value = h.opts.HangTimeout.String()
	case !given:
		return nil
	}
	return []string{job.HangTimeoutVar + "=" + value}
}

// has reports whether vars, as -x takes them, has a variable.
func has(vars []string, name string) bool {
	return slices.ContainsFunc(vars, func(v string) bool { return v == name || strings.HasPrefix(v, name+"=") })
}

// stdin is --stdin, or none if there is nothing to read: launchers do worse with
// an empty input than without.
func (h *Handover) stdin() string {
	if h.number > 0 { // what the first attempt has read is gone
		return "none"
	}
	if info, err := os.Stdin.Stat(); err != nil || info.Mode()&os.ModeCharDevice != 0 && !terminal.IsTerminal(os.Stdin) {
		return "none"
	}
	return h.opts.Stdin
}

// DryRun prints what run would do, as a shell script.
func (h *Handover) DryRun(paths []string, w io.Writer) error {
	folder := filepath.Join(os.TempDir(), "gorun-hosts")
	plan, err := h.plan(paths, folder)
	if err != nil {
		return err
	}
	for _, text := range plan.Warnings {
		h.console.Say("%s", text)
	}
	if len(plan.Files) > 0 {
		fmt.Fprintf(w, "mkdir -p %s\n", hosts.Quote(folder))
	}
	fmt.Fprint(w, plan)
	return nil
}

// Run starts the job and returns gorun's exit status when it is over.
func (h *Handover) Run(paths []string) (status int, err error) {
	if h.opts.Elastic != "" {
		return h.elasticAttempts(paths)
	}
	for began := time.Now(); ; h.number++ {
		h.again(began)
		start := time.Now()
		status, o, err := h.attempt(paths, nil)
		if err != nil || status == 0 || h.opts.Restarts == 0 || !mayGoOn(o) || !h.repeats(start, h.console.Say) {
			return status, err
		}
		h.suspended += o.Suspended
	}
}

// attempt is one start of the job, with more variables in the launcher's environment.
func (h *Handover) attempt(paths, more []string) (status int, o *supervisor.Outcome, err error) {
	folder, err := guardian.TempFolder("TMPDIR", "gorun-hosts-")
	if err != nil {
		return 0, nil, err
	}
	defer os.RemoveAll(folder) // the guardian has, unless it was killed
	if h.opts.Output == "" {
		h.words = newWords(h.opts.Tag)
		if h.elastic != nil {
			h.words.heed = elasticHeed
		}
	}
	if h.launcher.Cancel != "" {
		h.job = slurmName(paths[0])
	}
	plan, err := h.plan(paths, folder)
	if err != nil {
		return 0, nil, err
	}
	if h.opts.Output != "" { // only Open MPI would make it
		if err := os.MkdirAll(h.opts.Output, 0o777); err != nil {
			return 0, nil, fmt.Errorf("--output: %w", err)
		}
	}
	if h.opts.ReportBindings && h.opts.Bind != options.BindCores {
		h.console.Say("any rank may run on any CPU: %s binds none (--bind-to none)", plan.Argv[0])
	}
	for _, text := range plan.Warnings {
		h.console.Say("%s", text)
	}
	path, err := exec.LookPath(plan.Argv[0])
	if err != nil {
		return 0, nil, fmt.Errorf("%s: no such program in PATH", plan.Argv[0])
	}
	if h.remote {
		h.console.Say("starting %s on %s with %s; %s must exist on every host%s",
			ints.Counted(h.opts.Size(), "rank"), hostNames(plan.Hosts), plan.Argv[0], strings.Join(paths, " and "), builtHere(h.opts))
	}
	if h.opts.Trace != "" {
		_ = os.Truncate(h.opts.Trace, 0) // what an earlier job has left is not this one's
	}
	env, made := slices.Concat(plan.Env, more), guardian.Spec{Temp: []string{folder}, Files: plan.Files}
	if !h.remote {
		env = append(env, sessionFolder(folder)...)
		if shared, err := guardian.FreeName("/dev/shm", "gorun-mpi-"); err == nil {
			defer os.RemoveAll(shared)
			env, made.Temp = append(env, sharedFolder(shared)...), append(made.Temp, shared)
		}
	}
	o, output, err := h.supervise(guardian.App{Path: path, Argv: plan.Argv, Env: options.Environment(os.Environ(), env)}, plan.NoStdin, made)
	if err != nil {
		return 0, nil, err
	}
	status = h.report(o, plan.Argv[0])
	output.Wait(o, h.signals, 0)
	h.reportTrace(status)
	return status, o, nil
}

// builtHere says how other hosts get a program that was built from source.
func builtHere(o *options.Options) string {
	for _, a := range o.Apps {
		if a.Built {
			return fmt.Sprintf(": if it does not, go build it into a folder that all of them see, and name that file in place of %s", a.Program)
		}
	}
	return ""
}

// sessionFolder is the environment by which Open MPI's mpirun keeps its files on
// this host in folder, which is removed even if mpirun is killed. It is for ranks
// here alone: they refuse to run under a mpirun on another host that has one. Ranks of
// Open MPI 4 also refuse to run where orte_local_tmpdir_base is set.
func sessionFolder(folder string) []string {
	return []string{"OMPI_MCA_orte_tmpdir_base=" + folder, "PRTE_MCA_prte_local_tmpdir_base=" + folder}
}

// sharedFolder is the environment by which ranks of Open MPI, and UCX, keep the memory
// that they share in folder, which is removed even if they are killed. MPICH itself
// has no such variable.
func sharedFolder(folder string) []string {
	return []string{"OMPI_MCA_btl_vader_backing_directory=" + folder, "OMPI_MCA_btl_sm_backing_directory=" + folder, "UCX_POSIX_DIR=" + folder}
}

// hostNames is "node1, node2 and 6 more".
func hostNames(list []hosts.Host) string {
	const most = 8
	names := distinct(list)
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// supervise runs the launcher a under a guardian, which has made what made says, until no
// process of it is left. Some of its output may still be on its way.
func (h *Handover) supervise(a guardian.App, noStdin bool, made guardian.Spec) (*supervisor.Outcome, *stdio.Pumps, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	defer null.Close()
	stdin, files, input, err := h.input(null.Fd(), noStdin)
	if err != nil {
		return nil, nil, err
	}
	var pumps []*stdio.Pump
	var theirs []int
	if input != nil {
		theirs = append(theirs, stdin)
	}
	defer func() {
		for _, fd := range theirs {
			unix.Close(fd)
		}
	}()
	standard := [3]int{4}
	var launcherErr *os.File // its words are taken out before it is pumped
	for i, stream := range []string{"stdout", "stderr"} {
		from, end, err := stdio.Pipe(stream)
		if err != nil {
			return nil, nil, err
		}
		theirs = append(theirs, end)
		if i == 1 && h.words != nil {
			read, write, err := os.Pipe()
			if err != nil {
				return nil, nil, stdio.NoPipe(err)
			}
			launcherErr = from
			go h.words.relay(from, write)
			from = read
		}
		pumps = append(pumps, h.console.Pump(from, stream, h.opts.Timestamp))
		standard[i+1] = len(files)
		files = append(files, uintptr(end))
	}
	var cancel *canceller
	if h.job != "" {
		if cancel, err = startCanceller(h.launcher.Cancel, h.job, os.Environ()); err != nil {
			return nil, nil, err
		}
		files = append(files, cancel.alive.Fd())
	}
	made.Apps, made.Ranks, made.Top = []guardian.App{a}, []guardian.Rank{{Stdio: standard}}, len(files)
	g, err := guardian.Start(files, &made)
	if err != nil {
		if cancel != nil {
			cancel.end(true, h.signals, h.console.Say)
		}
		return nil, nil, err
	}
	for _, fd := range theirs {
		unix.Close(fd)
	}
	theirs = nil
	output := h.console.Start(pumps)
	if input != nil {
		go input.Run()
	}
	o := h.supervisor(g).Run(1)
	if cancel != nil { // before the sweep, which would kill the canceller too
		cancel.end(o.Reason != supervisor.Lost && !o.Killed && o.Ends[0].Status.Exited(), h.signals, h.console.Say)
	}
	if o.Reason == supervisor.Lost {
		guardian.Sweep(g.Since)
	}
	pumps[0].Drain()
	if launcherErr == nil {
		pumps[1].Drain()
	} else {
		_ = launcherErr.SetReadDeadline(time.Now().Add(drainTime)) // even if somebody still holds its other end
	}
	output.Wait(o, h.signals, stdio.HeadlineTime)
	return o, output, nil
}

// supervisor returns what looks after the launcher, which the guardian g has started.
func (h *Handover) supervisor(g *guardian.Process) *supervisor.Supervisor {
	sup := &supervisor.Supervisor{
		Grace: h.opts.Grace, Timeout: h.opts.Timeout, Spent: h.spent,
		Events: g.Events, Signals: h.signals, Broken: h.console.Broken,
		Ended: func(int, *supervisor.End) {}, Waiting: func(*supervisor.Outcome, []int) {}, Say: h.console.Say, Suspend: supervisor.Suspend,
	}
	sup.Send = func(c guardian.Command) error { return g.Send(h.gently(sup.Reason, c)) }
	if h.elastic != nil {
		sup.Brief, sup.Resize = elasticGrace, func() bool { return h.resize(h.console.Say) }
	}
	if h.words != nil && h.opts.HangTimeout > 0 {
		sup.Look = h.look
	}
	if h.words != nil {
		sup.Asked, sup.Unheard = h.words.stop, h.words.unheard
	}
	return sup
}

// input returns the descriptor of the launcher's standard input, the files of a
// guardian with it as number 4, and the relay that feeds it from a terminal.
func (h *Handover) input(null uintptr, none bool) (fd int, files []uintptr, r *stdio.Relay, err error) {
	files = []uintptr{null, null, 2, 0} // 3 is the socket, see guardian.Start
	switch {
	case none:
		fd = int(null)
	case !terminal.IsTerminal(os.Stdin):
		fd = int(os.Stdin.Fd())
	default:
		r = stdio.NewRelay()
		if fd, err = r.Add(0); err != nil {
			return 0, nil, nil, err
		}
	}
	return fd, append(files, uintptr(fd)), r, nil
}

// gently is the command to be sent for c, which is sent because the job ends for a
// reason. A launcher that gets SIGHUP or SIGQUIT leaves its ranks behind at once. With
// SIGTERM mpirun kills them after 1 s, and srun at once. So they get a signal that they
// pass on to the ranks and that does nothing else.
func (h *Handover) gently(why supervisor.Reason, c guardian.Command) guardian.Command {
	if c.Action != guardian.SignalGroups || c.Signal == unix.SIGCONT {
		return c
	}
	if c.Signal == unix.SIGHUP || c.Signal == unix.SIGQUIT {
		c.Signal = unix.SIGTERM
	}
	switch {
	case why != supervisor.Interrupted && why != supervisor.TooLate && why != supervisor.Resized:
	case h.launcher.StopSignal != 0:
		return guardian.Command{Action: guardian.SignalRanks, Signal: h.launcher.StopSignal}
	case h.words != nil && h.words.started() == h.opts.Size():
		return guardian.Command{Action: guardian.SignalRanks, Signal: job.StopSignal}
	case h.launcher.KillsSoon:
		h.console.Say("%s kills the ranks within 2s: not all of them run runtime.Main yet", h.launcher)
	}
	return c
}

// drainTime is how long what is on its way of a job that has ended may take.
const drainTime = 200 * time.Millisecond
