package launcher

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// goRun returns the command that builds a and prints the built file's name, and
// the folder to run it in. Building is go run's: the result lies in Go's build
// cache, so that starting again without a change links nothing and a launcher
// that is killed leaves nothing behind. A package of another module than the
// current folder's is built inside its own.
func (a *appOptions) goRun() (argv []string, dir string) {
	argv = []string{"go", "run", "-exec", "echo"}
	switch {
	case a.sources != nil:
		return append(argv, a.sources...), ""
	case !isFolder(a.program):
		return append(argv, "--", a.program), ""
	case moduleOf(a.program) == moduleOf("."):
		return append(argv, typed(a.program)), ""
	}
	return append(argv, "."), a.program
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// moduleOf returns the folder of the go.mod that governs dir, "" if there is none.
func moduleOf(dir string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}

// A builder runs the go command for the programs that are Go source, each time as
// a job of one rank under a guardian of its own, so that a build that is
// interrupted, or whose launcher is killed, leaves neither processes nor files.
type builder struct {
	console *console
	signals <-chan os.Signal
}

// all builds what is to be built, and puts its paths among the others. A dry run only
// says how.
func (b *builder) all(o *options, paths []string, stdout io.Writer) (err error) {
	for i := range o.apps {
		a := &o.apps[i]
		switch {
		case !a.built:
		case o.dryRun:
			argv, dir := a.goRun()
			fmt.Fprintf(stdout, "build %s: %s\n", a.program, quote(argv))
			if dir != "" {
				fmt.Fprintf(stdout, "  in %s\n", dir)
			}
			paths[i] = a.program
		default:
			if paths[i], err = b.build(a); err != nil {
				return err
			}
		}
	}
	return nil
}

// build compiles a and returns the executable's path. What the go command says
// goes to standard error as it is.
func (b *builder) build(a *appOptions) (string, error) {
	goCommand, err := exec.LookPath("go")
	if err != nil {
		return "", fmt.Errorf("%s is Go source, and the go command, to build it, is not in PATH; install Go or name an executable", a.program)
	}
	argv, dir := a.goRun()
	// A binary that had to be linked is run from a folder that go run removes; the second time it is in the cache.
	for range 2 {
		path, err := b.run(goCommand, argv, dir)
		if err != nil {
			return "", err
		}
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: the go command keeps no executables in its cache; install Go 1.24 or later, or build it and name the executable", a.program)
}

// tempFolder returns the name for a folder in the one that variable names, or else in
// TMPDIR. The guardian makes it, so that it is removed whoever is killed.
func tempFolder(variable, pattern string) (string, error) {
	parent := os.Getenv(variable)
	if parent == "" {
		variable = "TMPDIR"
	}
	path, err := freeName(parent, pattern)
	if err != nil {
		return "", fmt.Errorf("no temporary folder: %w; let %s name a folder that can be written", err, variable)
	}
	return path, nil
}

// freeName returns the name of a folder that could be made in parent.
func freeName(parent, pattern string) (string, error) {
	path, err := os.MkdirTemp(parent, pattern)
	if err != nil {
		return "", err
	}
	return path, os.Remove(path)
}

// run runs one command in dir and returns the line that it prints.
func (b *builder) run(path string, argv []string, dir string) (line string, err error) {
	temp, err := tempFolder("GOTMPDIR", "gorun-build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp) // the guardian has, unless it was killed
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer null.Close()
	stdout, outEnd, err := pipe("stdout")
	if err != nil {
		return "", err
	}
	defer stdout.Close()
	stderr, errEnd, err := pipe("stderr")
	if err != nil {
		unix.Close(outEnd)
		return "", err
	}
	g, err := startGuardian(
		[]uintptr{null.Fd(), null.Fd(), 2, 0, uintptr(outEnd), uintptr(errEnd)},
		&spec{
			Apps:  []app{{Path: path, Argv: argv, Env: environment(os.Environ(), []string{"GOTMPDIR=" + temp}), Dir: dir}},
			Ranks: []rank{{Stdio: [3]int{0, 4, 5}}},
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
	reading.Go((&pump{from: stderr, to: b.console.err, raw: true, lines: splitter{limit: maxLine}}).run)
	s := &supervisor{
		grace: time.Second, events: g.events, send: g.send, signals: b.signals,
		ended: func(int, *end) {}, waiting: func(*outcome, []int) {}, say: func(string, ...any) {}, suspend: suspend,
	}
	o := s.run(1)
	if o.reason == lost {
		g.sweep()
	}
	reading.Wait()
	switch {
	case o.reason == interrupted:
		return "", &statusError{status: 128 + int(o.signal)}
	case o.reason == refused:
		return "", fmt.Errorf("%s: %v", path, o.errno)
	case o.reason != finished:
		return "", &statusError{status: 1} // go has said why
	}
	return strings.TrimRight(said.String(), "\n"), nil
}
