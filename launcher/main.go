package launcher

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/internal/control"
)

// Main is the command gorun. args is the command line with the command's name; the
// result is its exit status. The same function is the guardian's, which is known
// by its name.
func Main(args []string) int {
	if len(args) > 0 && filepath.Base(args[0]) == guardianName {
		return guard()
	}
	out := &page{file: os.Stdout}
	status := obey(args, out)
	switch {
	case status != 0 || out.err == nil:
		return status
	case errors.Is(out.err, unix.EPIPE):
		return statusClosed
	}
	return complain(fmt.Errorf("standard output: %w", errors.Unwrap(out.err)), 1)
}

// A page is a file for what gorun prints, which remembers the first failed write.
type page struct {
	file *os.File
	err  error
}

func (p *page) Write(text []byte) (n int, err error) {
	n, err = p.file.Write(text)
	p.err = cmp.Or(p.err, err)
	return n, err
}

// obey carries out a command line and returns the exit status.
func obey(args []string, stdout io.Writer) int {
	if len(args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	if len(args) == 2 && (args[1] == "--version" || args[1] == "-version") {
		fmt.Fprintln(stdout, "gorun", version())
		return 0
	}
	switch args[1] {
	case "top":
		return top(args[2:], os.Stdin, os.Stdout, os.Stderr)
	case "doctor":
		return doctor(args[2:], thisCheckup(), stdout, os.Stderr)
	case "help":
		return help(args[2:], stdout)
	}
	o, err := parseOptions(args[1:], cores(), os.LookupEnv, os.Stderr)
	if errors.Is(err, errHelp) {
		fmt.Fprint(stdout, usage)
		return 0
	}
	if err != nil {
		return complain(err, 2)
	}
	status, err := launch(o, stdout)
	if err != nil {
		return complain(err, 1)
	}
	return status
}

// help prints a page of help and returns gorun's exit status.
func help(topic []string, stdout io.Writer) int {
	switch {
	case len(topic) == 0:
		fmt.Fprint(stdout, usage)
	case len(topic) == 1 && topic[0] == "hosts":
		fmt.Fprint(stdout, hostsUsage)
	default:
		fmt.Fprintln(os.Stderr, "gorun: there are two pages of help: gorun help, and gorun help hosts")
		return 2
	}
	return 0
}

// parseCommand reads the flags of one of gorun's commands, and at most so many
// arguments. done says that the command is over, with status: after help or a mistake.
func parseCommand(f *flag.FlagSet, args []string, most int, usage string, stdout, stderr io.Writer) (status int, done bool) {
	f.SetOutput(io.Discard)
	err := f.Parse(args)
	if err == nil && f.NArg() > most {
		err = fmt.Errorf("%q is one argument too many", f.Arg(most))
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		return 0, true
	case err != nil:
		fmt.Fprintf(stderr, "%s: %v\n%s", f.Name(), err, usage)
		return 2, true
	}
	return 0, false
}

// launch finds or builds the programs, makes the plan, and carries it out. A dry run
// is written to stdout.
func launch(o *options, stdout io.Writer) (status int, err error) {
	c := newConsole(o, os.Stdout, os.Stderr)
	defer func() {
		if lost := c.close(); status == 0 {
			status = lost
		}
	}()
	signals := make(chan os.Signal, 32)
	if err := o.checkTrace(); err != nil {
		return 0, err
	}
	h, err := newHandover(o, c, signals, thisMachine(false), thisFinder(), os.LookupEnv)
	if err != nil {
		return 0, err
	}
	if h != nil {
		o.handOverTrace()
	}
	paths, err := located(o)
	if err != nil {
		return 0, err
	}
	listen(signals) // until here nothing was started or made
	err = (&builder{c, signals}).all(o, paths, stdout)
	switch {
	case err != nil:
		return 0, err
	case h != nil && o.dryRun:
		return 0, h.dryRun(paths, stdout)
	case h != nil:
		return h.run(paths)
	}
	if n := o.size(); n > control.MaxRanks {
		return 0, &statusError{2, fmt.Errorf("-np: %d ranks; gorun starts at most %d on one host", n, control.MaxRanks)}
	}
	p := newPlan(o, paths, thisMachine(o.bind == bindCores && o.size() > 1))
	if o.dryRun {
		p.write(stdout)
		return 0, nil
	}
	if err := c.openFiles(o); err != nil {
		return 0, err
	}
	if o.reportBindings {
		p.writeBindings(os.Stderr)
	}
	if len(p.ranks) > p.cores {
		c.say("%d ranks share %s", len(p.ranks), count(p.cores, "usable core"))
	}
	return attempts(o, p, c, signals)
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

// located returns the files to execute, in the order of o.apps, "" for those that are
// to be built.
func located(o *options) (paths []string, err error) {
	paths = make([]string, len(o.apps))
	for i := range o.apps {
		if paths[i], err = o.apps[i].locate(); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// complain prints err and returns its exit status, or the given one if it has none.
func complain(err error, status int) int {
	var own *statusError
	if errors.As(err, &own) {
		status = own.status
		if own.err == nil {
			return status
		}
	}
	fmt.Fprintf(os.Stderr, "gorun: %v\n", err)
	return status
}

// version is the module's, as the go command recorded it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}

// usage fits one screen of 80 columns and 24 lines.
const usage = `usage: gorun [flags] program [arguments] [: [flags] program [arguments]]...
       gorun doctor | top | help hosts   this machine; a job; several hosts
gorun starts one program as N ranks: an executable, a Go package or .go files.
  -np N, -n N         number of ranks; without it one for each usable core
  --wdir DIR          working directory of the ranks
  -x NAME[=value]     environment variable for the ranks; may be repeated
  --stdin WHO         who reads standard input: a rank's number (0), all or none
  --tag-output, --timestamp-output  put [rank]<stream>: or the time before lines
  --output DIR        write the output of rank N to DIR/rank.N instead
  --trace FILE        write what every rank calls and computes, for Perfetto
  --bind-to WHAT      core (default): divide the cores if they suffice; or none
  --map-by WHAT       core (default): next rank, next core; or socket
  --report-bindings   say which rank may run on which CPUs
  --timeout TIME      end the job after TIME (90, 90s, 1m30s), exit status 124
  --hang-timeout TIME end it when nothing moves for TIME (5m; 0: never), status
                      123, and at once when ranks wait for each other
  --gpus WHAT         0,2: tensors on these; auto: on what is there; none
  --grace TIME        from asking ranks to end until they are killed (5s)
  --max-restarts N    start a failed job again, up to N times (0)
  --dry-run           print what would be started      (and: --version, -h)

The exit status is that of the first rank that failed, 128 + its signal's number
if one killed it, 130 after Ctrl-C, which cancels the ranks' context; a second
Ctrl-C kills them. Builds obey Go's variables: GOFLAGS=-race gorun -np 2 ./train
`
