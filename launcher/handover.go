package launcher

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/launcher/hosts"
)

// A handover is a job that another launcher starts. It is one child process under
// a guardian, as a rank is, so that the same signals, limits and exit statuses
// hold and nothing of it is left on this host.
type handover struct {
	opts     *options
	list     hostList
	launcher installed
	mpi      string // srun's --mpi
	remote   bool   // some host is another one
	cores    int
	console  *console
	signals  <-chan os.Signal
	words    *words // nil: the ranks' output goes elsewhere
	failed   int    // looks since a rank has told that it failed
}

// newHandover says whether another launcher is to start the job, and which. It is
// nil if gorun starts the ranks itself.
func newHandover(o *options, c *console, signals <-chan os.Signal, m machine, f finder, env func(string) (string, bool)) (*handover, error) {
	list, err := o.hosts.find(env)
	if err != nil {
		return nil, err
	}
	for _, w := range list.warnings {
		c.say("%v", w)
	}
	if err := list.fit(o, m.cores); err != nil {
		return nil, err
	}
	if err := o.checkStdin(); err != nil {
		return nil, err
	}
	remote := !list.onlyHere(m.host)
	if !remote && o.hosts.via == "" {
		return nil, nil
	}
	if o.restarts > 0 {
		return nil, fmt.Errorf("--max-restarts: only for ranks that gorun starts itself, on this host and without --via")
	}
	found, err := f.choose(o.hosts.via, list.system)
	if err != nil {
		return nil, err
	}
	h := &handover{opts: o, list: list, launcher: found, remote: remote, cores: m.cores, console: c, signals: signals}
	if found.kind == hosts.Srun {
		h.mpi = f.slurmMPI(env, said)
	}
	return h, nil
}

// plan returns what to execute for the programs at paths. folder is where files of
// the launcher are to be.
func (h *handover) plan(paths []string, folder string) (hosts.Handover, error) {
	o := h.opts
	by, err := hosts.ParseMapBy(o.mapBy)
	if err != nil {
		return hosts.Handover{}, fmt.Errorf("--map-by %s: with another launcher give slot or node", o.mapBy)
	}
	j := hosts.Job{
		Hosts:   h.list.hosts,
		Options: hosts.Options{By: by, Oversubscribe: o.hosts.oversubscribe, Cores: h.cores},
		Program: h.launcher.program, Folder: folder, Root: os.Geteuid() == 0,
		ReportBindings: o.reportBindings, Stdin: h.stdin(), Typed: isTerminal(os.Stdin), TagOutput: o.tag, MPI: h.mpi,
	}
	if h.list.hosts == nil && o.size() > h.cores {
		j.Oversubscribe = true // as gorun itself on one host
	}
	if o.output != "" {
		if j.Output, err = absolute(o.output); err != nil {
			return hosts.Handover{}, err
		}
	}
	for i, a := range o.apps {
		dir := a.dir
		// Named in any case: a launcher that lacks it on a host would run the ranks elsewhere.
		if dir != "" || h.remote {
			if dir, err = absolute(dir); err != nil {
				return hosts.Handover{}, err
			}
		}
		argv, vars := append([]string{paths[i]}, a.args...), a.vars
		if h.remote && !(h.launcher.kind == hosts.Srun && len(o.apps) > 1) { // srun's file of several programs holds no script
			argv, dir = h.started(dir, argv)
		}
		if h.words != nil {
			vars = append(slices.Clone(vars), job.WordVar+"="+h.words.token)
		}
		j.Apps = append(j.Apps, hosts.App{Ranks: a.ranks, Argv: argv, Dir: dir, Vars: vars})
	}
	plan, err := hosts.NewHandover(h.launcher.kind, j)
	return plan, withoutOp(err)
}

// stdin is --stdin, or none if there is nothing to read: launchers do worse with
// an empty input than without.
func (h *handover) stdin() string {
	if info, err := os.Stdin.Stat(); err != nil || info.Mode()&os.ModeCharDevice != 0 && !isTerminal(os.Stdin) {
		return "none"
	}
	return h.opts.stdin
}

// dryRun prints what run would do, as a shell script.
func (h *handover) dryRun(paths []string, w io.Writer) error {
	folder := filepath.Join(os.TempDir(), "gorun-hosts")
	plan, err := h.plan(paths, folder)
	if err != nil {
		return err
	}
	for _, text := range plan.Warnings {
		h.console.say("%s", text)
	}
	if len(plan.Files) > 0 {
		fmt.Fprintf(w, "mkdir -p %s\n", hosts.Quote(folder))
	}
	fmt.Fprint(w, plan)
	return nil
}

// run starts the job and returns gorun's exit status when it is over.
func (h *handover) run(paths []string) (status int, err error) {
	folder, err := tempFolder("TMPDIR", "gorun-hosts-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(folder) // the guardian has, unless it was killed
	if h.opts.output == "" {
		h.words = newWords(h.opts.tag)
	}
	plan, err := h.plan(paths, folder)
	if err != nil {
		return 0, err
	}
	if h.opts.output != "" { // only Open MPI would make it
		if err := os.MkdirAll(h.opts.output, 0o777); err != nil {
			return 0, fmt.Errorf("--output: %w", err)
		}
	}
	if h.opts.reportBindings {
		h.console.say("any rank may run on any CPU: %s binds none (--bind-to none)", plan.Argv[0])
	}
	for _, text := range plan.Warnings {
		h.console.say("%s", text)
	}
	path, err := exec.LookPath(plan.Argv[0])
	if err != nil {
		return 0, fmt.Errorf("%s: no such program in PATH", plan.Argv[0])
	}
	if h.remote {
		h.console.say("starting %s on %s with %s; %s must exist on every host%s",
			count(h.opts.size(), "rank"), hostNames(plan.Hosts), plan.Argv[0], strings.Join(paths, " and "), h.opts.builtHere())
	}
	if h.opts.trace != "" {
		_ = os.Truncate(h.opts.trace, 0) // what an earlier job has left is not this one's
	}
	env, made := plan.Env, spec{Temp: []string{folder}, Files: plan.Files}
	if !h.remote {
		env = append(env, sessionFolder(folder)...)
		if shared, err := freeName("/dev/shm", "gorun-mpi-"); err == nil {
			defer os.RemoveAll(shared)
			env, made.Temp = append(env, sharedFolder(shared)...), append(made.Temp, shared)
		}
	}
	o, err := h.supervise(app{Path: path, Argv: plan.Argv, Env: environment(os.Environ(), env)}, plan.NoStdin, made)
	if err != nil {
		return 0, err
	}
	status = h.report(o, plan.Argv[0])
	h.reportTrace(status)
	return status, nil
}

// builtHere says how other hosts get a program that was built from source.
func (o *options) builtHere() string {
	for _, a := range o.apps {
		if a.built {
			return fmt.Sprintf(": if it does not, go build it into a folder that all of them see, and name that file in place of %s", a.program)
		}
	}
	return ""
}

// sessionFolder is the environment by which Open MPI's mpirun keeps its files on
// this host in folder, which is removed also if mpirun is killed. It is for ranks
// here alone: they refuse to run under a mpirun on another host that has one. Ranks of
// Open MPI 4 also refuse to run where orte_local_tmpdir_base is set.
func sessionFolder(folder string) []string {
	return []string{"OMPI_MCA_orte_tmpdir_base=" + folder, "PRTE_MCA_prte_local_tmpdir_base=" + folder}
}

// sharedFolder is the environment by which ranks of Open MPI, and UCX, keep the memory
// that they share in folder, which is removed also if they are killed. MPICH itself
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
// process of it is left.
func (h *handover) supervise(a app, noStdin bool, made spec) (*outcome, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	stdin, files, input, err := h.input(null.Fd(), noStdin)
	if err != nil {
		return nil, err
	}
	var pumps []*pump
	var theirs []int
	if input != nil {
		theirs = append(theirs, stdin)
	}
	defer func() {
		for _, fd := range theirs {
			unix.Close(fd)
		}
	}()
	stdio := [3]int{4}
	var launcherErr *os.File // its words are taken out before it is pumped
	for i, to := range []*sink{h.console.out, h.console.err} {
		from, end, err := pipe(to.name)
		if err != nil {
			return nil, err
		}
		theirs = append(theirs, end)
		if i == 1 && h.words != nil {
			read, write, err := os.Pipe()
			if err != nil {
				return nil, noPipe(err)
			}
			launcherErr = from
			go h.words.relay(from, write)
			from = read
		}
		p := &pump{from: from, to: to, lines: splitter{limit: maxLine}, tag: tag{clock: h.opts.timestamp}}
		p.raw = p.tag.empty()
		pumps = append(pumps, p)
		stdio[i+1] = len(files)
		files = append(files, uintptr(end))
	}
	made.Apps, made.Ranks, made.Top = []app{a}, []rank{{Stdio: stdio}}, len(files)
	g, err := startGuardian(files, &made)
	if err != nil {
		return nil, err
	}
	for _, fd := range theirs {
		unix.Close(fd)
	}
	theirs = nil
	var pumping sync.WaitGroup
	for _, p := range pumps {
		pumping.Go(p.run)
	}
	if input != nil {
		go input.run()
	}
	sup := &supervisor{
		grace: h.opts.grace, timeout: h.opts.timeout,
		events: g.events, send: gently(g.send), signals: h.signals, broken: h.console.broken,
		ended: func(int, *end) {}, waiting: func(*outcome, []int) {}, say: h.console.say, suspend: suspend,
	}
	if h.words != nil && h.opts.hangTimeout > 0 {
		sup.look = h.look
	}
	o := sup.run(1)
	if o.reason == lost {
		g.sweep()
	}
	for _, p := range pumps {
		if launcherErr == nil || p.to != h.console.err {
			p.drain()
		}
	}
	if launcherErr != nil {
		_ = launcherErr.SetReadDeadline(time.Now().Add(drainTime)) // also if somebody still holds its other end
	}
	await(&pumping, h.signals)
	return o, nil
}

// input returns the descriptor of the launcher's standard input, the files of a
// guardian with it as number 4, and the relay that feeds it from a terminal.
func (h *handover) input(null uintptr, none bool) (fd int, files []uintptr, r *relay, err error) {
	files = []uintptr{null, null, 2, 0} // 3 is the socket, see startGuardian
	switch {
	case none:
		fd = int(null)
	case !isTerminal(os.Stdin):
		fd = int(os.Stdin.Fd())
	default:
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			return 0, nil, nil, noPipe(err)
		}
		fd, r = p[0], &relay{from: os.Stdin, to: []*os.File{os.NewFile(uintptr(p[1]), "stdin")}}
	}
	return fd, append(files, uintptr(fd)), r, nil
}

// gently sends SIGTERM where a launcher would leave its ranks behind at once:
// after SIGHUP or SIGQUIT.
func gently(send func(command) error) func(command) error {
	return func(c command) error {
		if c.Action == signalGroups && (c.Signal == unix.SIGHUP || c.Signal == unix.SIGQUIT) {
			c.Signal = unix.SIGTERM
		}
		return send(c)
	}
}

// await waits until all output is written, or the user has had enough.
func await(pumping *sync.WaitGroup, signals <-chan os.Signal) {
	done := make(chan struct{})
	go func() {
		pumping.Wait()
		close(done)
	}()
	for {
		select {
		case <-done:
			return
		case sig := <-signals:
			switch sig {
			case unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT:
				return
			case unix.SIGTSTP:
				suspend()
			}
		}
	}
}

// drainTime is how long what is on its way of a job that has ended may take.
const drainTime = 200 * time.Millisecond
