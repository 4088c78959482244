package launcher

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	goruntime "runtime"
	"syscall"

	"github.com/gorun-spmd/gorun/internal/forecast"
	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/launcher/build"
	"github.com/gorun-spmd/gorun/launcher/exit"
	"github.com/gorun-spmd/gorun/launcher/options"
	"github.com/gorun-spmd/gorun/launcher/stdio"
)

// planCommand is the command gorun plan. It returns the exit status.
func planCommand(args []string, stdout io.Writer) int {
	c, usage, err := parseForecast(args, os.LookupEnv, os.Stderr)
	if usage {
		fmt.Fprint(stdout, forecastUsage)
		return 0
	}
	if err != nil {
		return complain(err, 2)
	}
	r, err := c.run()
	if err != nil {
		return complain(err, 1)
	}
	ok := true
	if c.memory > 0 {
		ok, _ = fits(r, c.memory)
	}
	if c.json {
		out := json.NewEncoder(stdout)
		out.SetIndent("", "  ")
		_ = out.Encode(r)
	} else {
		writeForecast(stdout, r, c.memory)
	}
	if !ok {
		return 1
	}
	return 0
}

// run builds the program and runs it: where not all ranks run twice, as the first time shows which
// ranks are alike.
func (c *forecastCommand) run() (*forecast.Report, error) {
	console := stdio.NewConsole(os.Stdout, os.Stderr, false)
	defer console.Close()
	signals := make(chan os.Signal, 32)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	paths, err := build.Locate(c.program)
	if err == nil {
		err = (&build.Builder{Console: console, Signals: signals}).All(c.program, paths, io.Discard)
	}
	if err != nil {
		return nil, err
	}
	q := c.request
	if c.all || q.Size <= allRun {
		for r := range q.Size {
			q.Run = append(q.Run, r)
		}
		return c.start(paths[0], &q, signals)
	}
	first := q
	first.Run, first.Steps = []int{0, q.Size - 1}, 1
	r, err := c.start(paths[0], &first, signals)
	if err != nil {
		return nil, err
	}
	if q.Run, q.Grid, err = forecast.Choose(q.Size, r.Meshes, c.extra); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	return c.start(paths[0], &q, signals)
}

// start runs the program for a request. What it writes is shown if it fails.
func (c *forecastCommand) start(path string, q *forecast.Request, signals <-chan os.Signal) (*forecast.Report, error) {
	const fd = 3 // of the first extra file
	q.FD = fd
	text, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	a := &c.program.Apps[0]
	cmd := exec.Command(path, a.Args...)
	cmd.Args[0] = a.Argv0(path)
	cmd.Env, cmd.Dir = options.Environment(os.Environ(), append(a.Vars, job.PlanVar+"="+string(text))), a.Dir
	cmd.ExtraFiles = []*os.File{out}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	goruntime.LockOSThread() // the kernel kills the process when the thread ends that has started it
	defer goruntime.UnlockOSThread()
	err = cmd.Start()
	out.Close()
	if err != nil {
		return nil, exit.Unusable("%s: %v", path, err)
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-signals:
			_ = cmd.Process.Kill()
		case <-ended:
		}
	}()
	report := new(forecast.Report)
	read := json.NewDecoder(in).Decode(report)
	if err := cmd.Wait(); err != nil {
		_, _ = os.Stderr.Write(said.Bytes())
		var end *exec.ExitError
		if errors.As(err, &end) && end.ExitCode() > 0 {
			return nil, exit.With(end.ExitCode(), nil)
		}
		return nil, fmt.Errorf("plan: %s: %w", path, err)
	}
	if read != nil {
		_, _ = os.Stderr.Write(said.Bytes())
		return nil, fmt.Errorf("plan: %s has reported nothing; its main function must call runtime.Main", path)
	}
	return report, nil
}
