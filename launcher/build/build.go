//go:build linux

package build

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/launcher/exit"
	"github.com/gorun-spmd/gorun/launcher/guardian"
	"github.com/gorun-spmd/gorun/launcher/options"
	"github.com/gorun-spmd/gorun/launcher/phrase"
	"github.com/gorun-spmd/gorun/launcher/stdio"
	"github.com/gorun-spmd/gorun/launcher/supervisor"
)

// A Builder runs the go command for the programs that are Go source.
type Builder struct {
	Console *stdio.Console
	Signals <-chan os.Signal
}

// All builds the programs that are Go source, and sets their paths in paths. A dry run only
// prints the commands, which build to the paths of KeptAs.
func (b *Builder) All(o *options.Options, paths []string, stdout io.Writer) (err error) {
	for i := range o.Apps {
		a := &o.Apps[i]
		switch {
		case !a.Built:
		case o.DryRun:
			paths[i] = KeptAs(a, i)
			// -buildvcs=false as in go run: a repository that git does not trust is no reason to fail.
			fmt.Fprintln(stdout, phrase.Quote(GoCommand(a, "build", "-buildvcs=false", "-o", paths[i])))
		default:
			if paths[i], err = b.build(a); err != nil {
				return err
			}
		}
	}
	return nil
}

// build compiles a and returns the executable's path. The output of the go command goes to
// standard error unchanged.
func (b *Builder) build(a *options.App) (string, error) {
	goPath, err := exec.LookPath("go")
	if err != nil {
		return "", fmt.Errorf("%s is Go source, and the go command, to build it, is not in PATH; install Go or name an executable", a.Program)
	}
	argv := GoCommand(a, "run", "-exec", "echo")
	// go run runs a binary that it had to link from a folder that it then removes. The second time the binary is in the cache,
	// unless a source was saved meanwhile.
	for range 3 {
		path, err := b.run(goPath, argv)
		if err != nil {
			return "", err
		}
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: the go command has no executable of it in its cache: its source changes, or Go is older than 1.24; "+
		"install that, or build it and name the executable", a.Program)
}

// run runs one command and returns the line that it prints.
func (b *Builder) run(path string, argv []string) (line string, err error) {
	temp, err := guardian.TempFolder("GOTMPDIR", "gorun-build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp) // the guardian removes it, unless it is killed
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer null.Close()
	stdout, outEnd, err := stdio.Pipe("stdout")
	if err != nil {
		return "", err
	}
	defer stdout.Close()
	stderr, errEnd, err := stdio.Pipe("stderr")
	if err != nil {
		unix.Close(outEnd)
		return "", err
	}
	g, err := guardian.Start(
		[]uintptr{null.Fd(), null.Fd(), 2, 0, uintptr(outEnd), uintptr(errEnd)},
		&guardian.Spec{
			Apps:  []guardian.App{{Path: path, Argv: argv, Env: options.Environment(os.Environ(), []string{"GOTMPDIR=" + temp})}},
			Ranks: []guardian.Rank{{Stdio: [3]int{0, 4, 5}}},
			Top:   6, Temp: []string{temp},
		})
	unix.Close(outEnd)
	unix.Close(errEnd)
	if err != nil {
		stderr.Close()
		return "", err
	}
	var said bytes.Buffer
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(&said, stdout) })
	reading.Go(b.Console.Pump(stderr, "stderr", false).Run)
	s := &supervisor.Supervisor{
		Grace: time.Second, Events: g.Events, Send: g.Send, Signals: b.Signals,
		Ended: func(int, *supervisor.End) {}, Waiting: func(*supervisor.Outcome, []int) {}, Say: func(string, ...any) {},
		Suspend: supervisor.Suspend,
	}
	o := s.Run(1)
	if o.Reason == supervisor.Lost {
		guardian.Sweep(g.Since)
	}
	reading.Wait()
	switch {
	case o.Reason == supervisor.Interrupted:
		return "", exit.With(128+int(o.Signal), nil)
	case o.Reason == supervisor.Refused:
		return "", fmt.Errorf("%s: %v", path, o.Errno)
	case o.Reason != supervisor.Finished:
		return "", exit.With(1, homeless()) // go has said why
	}
	return strings.TrimRight(said.String(), "\n"), nil
}

// homeless says what to do where the go command finds no folder for its caches, which it names one by one; nil if it has them.
func homeless() error {
	unset := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return os.Getenv(name) != "" })
	}
	if unset("HOME") && (unset("GOPATH", "GOMODCACHE") || unset("GOCACHE", "XDG_CACHE_HOME")) {
		return errors.New("the go command keeps its caches under HOME, which is not set; set it to a folder that may be written, " +
			"or set both GOPATH and GOCACHE, or name an executable")
	}
	return nil
}
