package launcher

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// Main is the command gorun. args is the command line with the command's name; the
// result is its exit status. The same function is the guardian's, which is known
// by its name.
func Main(args []string) int {
	if len(args) > 0 && filepath.Base(args[0]) == guardianName {
		return guard()
	}
	if len(args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	if len(args) == 2 && (args[1] == "--version" || args[1] == "-version") {
		fmt.Println("gorun", version())
		return 0
	}
	o, err := parseOptions(args[1:], cores(), os.LookupEnv, os.Stderr)
	if errors.Is(err, errHelp) {
		fmt.Print(usage)
		return 0
	}
	if err != nil {
		return complain(err, 2)
	}
	status, err := launch(o)
	if err != nil {
		return complain(err, 1)
	}
	return status
}

// launch finds or builds the programs, makes the plan, and carries it out.
func launch(o *options) (status int, err error) {
	paths := make([]string, len(o.apps))
	for i := range o.apps {
		a := &o.apps[i]
		if paths[i], err = a.locate(); err != nil {
			return 0, err
		}
		if !a.built {
			continue
		}
		if o.dryRun {
			argv, dir := a.goRun()
			fmt.Printf("build %s: %s\n", a.program, quote(argv))
			if dir != "" {
				fmt.Printf("  in %s\n", dir)
			}
			paths[i] = a.program
		} else if paths[i], err = a.build(os.Stderr); err != nil {
			return 0, err
		}
	}
	p := newPlan(o, paths, thisMachine(o.bind == bindCores && o.size() > 1))
	if o.dryRun {
		p.write(os.Stdout)
		return 0, nil
	}
	signals := make(chan os.Signal, 32)
	for _, s := range []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2,
		unix.SIGTSTP, unix.SIGCONT} {
		if !signal.Ignored(s) { // under nohup, and in a script's background, it stays ignored
			signal.Notify(signals, s)
		}
	}
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) // a write then returns EPIPE
	c, err := newConsole(o, os.Stdout, os.Stderr)
	if err != nil {
		return 0, err
	}
	if o.reportBindings {
		p.writeBindings(os.Stderr)
	}
	if len(p.ranks) > p.cores {
		c.say("%d ranks share %s", len(p.ranks), count(p.cores, "usable core"))
	}
	a := &attempt{opts: o, plan: p, console: c}
	defer a.end()
	result, err := a.run(signals)
	if err == nil {
		status = a.report(result)
	}
	if !c.close() && status == 0 {
		status = 1
	}
	return status, err
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

// usage fits one screen of 80 columns.
const usage = `gorun starts one program as N ranks: an executable, a Go package or .go files.

usage: gorun [flags] program [arguments] [: [flags] program [arguments]]...

  -np N, -n N          ranks; without it one for each usable core
  --wdir DIR           working directory of the ranks
  -x NAME[=value]      environment variable for the ranks (may be repeated)
  --stdin WHO          who reads standard input: a rank (0), all, none
  --tag-output         put [rank]<stream>: in front of each line
  --timestamp-output   put the time in front of each line
  --output DIR         write each rank's output to DIR/rank.N, not to the terminal
  --bind-to WHAT       core: divide the cores among the ranks (the default if they
                       are enough); none: do not
  --report-bindings    say which rank got which CPUs
  --timeout TIME       end the job after TIME: 90, 90s, 1m30s; exit status 124
  --grace TIME         between asking ranks to end and killing them (5s)
  --dry-run            print what would be started
  --version, -h

The exit status is that of the first rank that failed, 128 + its signal's number
if one killed it; 130 after Ctrl-C, which ranks see as a cancelled context.
A second Ctrl-C kills at once. Go's own variables (GOFLAGS=-race) hold for builds.
`
