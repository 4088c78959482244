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
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/gorun-spmd/gorun/internal/forecast"
	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/launcher/build"
	"github.com/gorun-spmd/gorun/launcher/exit"
	"github.com/gorun-spmd/gorun/launcher/machine"
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
	status, err := c.run(stdout)
	if err != nil {
		return complain(err, 1)
	}
	return status
}

// run builds the program, plans it, and prints what is to be said. It returns the exit status.
func (c *forecastCommand) run(stdout io.Writer) (status int, err error) {
	console := stdio.NewConsole(os.Stdout, os.Stderr, false)
	defer console.Close()
	signals := make(chan os.Signal, 32)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	paths, err := build.Locate(c.program)
	if err == nil {
		err = (&build.Builder{Console: console, Signals: signals}).All(c.program, paths, io.Discard)
	}
	if err != nil {
		return 0, err
	}
	net, err := c.net.parse(c.request.Size)
	if err != nil {
		return 0, err
	}
	if c.machine != noMachine {
		m, err := c.rates(min(net[0].Ranks, c.request.Size))
		if err != nil {
			return 0, fmt.Errorf("plan: --machine: %w", err)
		}
		net = filled(net, m)
		c.request.Machine, c.request.Net = m, net
	}
	p := planning{c, paths[0], net, signals, os.Stderr}
	if c.sweep != nil {
		return p.sweep(stdout)
	}
	r, err := p.plan(c.program.Apps[0].Args)
	if err != nil {
		return 0, err
	}
	if err := p.predict(r, c.trace); err != nil {
		return 0, err
	}
	if c.memory > 0 {
		if ok, _ := fits(r, c.memory); !ok {
			status = 1
		}
	}
	if !c.json {
		writeForecast(stdout, r, c.memory)
		return status, nil
	}
	out := json.NewEncoder(stdout)
	out.SetIndent("", "  ")
	return status, out.Encode(r)
}

// mostMeasured is how many ranks for each core measure a machine: more take turns all the more.
const mostMeasured = 4

// rates returns the machine as each rank of a host has it, of ranks in all.
func (c *forecastCommand) rates(ranks int) (*forecast.Machine, error) {
	if c.machine != "" {
		m, err := readMachine(c.machine)
		if err != nil {
			return nil, err
		}
		return m.For(ranks), nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cores := machine.Cores()
	cmd := exec.Command(self, "-np", strconv.Itoa(min(ranks, mostMeasured*cores)), self, RatesCommand)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("this machine cannot be measured: %w: %s; give a FILE, or none", err, bytes.TrimSpace(said.Bytes()))
	}
	m := new(forecast.Machine)
	if err := json.Unmarshal(out, m); err != nil {
		return nil, err
	}
	m.Cores = cores
	return m.For(ranks), nil
}

// A planning is a plan in progress.
type planning struct {
	*forecastCommand
	path    string
	net     forecast.Net
	signals <-chan os.Signal
	stderr  io.Writer // what the program has said, if it fails
}

// plan runs the program with some arguments: where not all ranks run twice, as the first time shows
// which ranks are alike.
func (p *planning) plan(args []string) (*forecast.Report, error) {
	q := p.request
	if p.all || q.Size <= allRun {
		for r := range q.Size {
			q.Run = append(q.Run, r)
		}
	} else {
		first := q
		first.Run, first.Steps = []int{0, q.Size - 1}, 1
		r, err := p.start(args, &first)
		if err != nil {
			return nil, err
		}
		q.Predicted = r.Predicted
		if q.Run, q.Grid, err = forecast.Choose(q.Size, r.Meshes, p.extra); err != nil {
			return nil, fmt.Errorf("plan: %w", err)
		}
	}
	note := ""
	if m := q.Machine; m != nil && m.Program > 0 {
		q.Machine, note = p.itself(args, q)
	}
	r, err := p.start(args, &q)
	if err != nil {
		return nil, err
	}
	r.Machine = q.Machine
	if note != "" {
		r.Notes = append(r.Notes, note)
	}
	return r, nil
}

// itself runs one rank of the program for what its steps take beside kernels and calls, and returns the machine with that. If it
// cannot be found, the machine is as it was, and the note says so.
func (p *planning) itself(args []string, q forecast.Request) (m *forecast.Machine, note string) {
	q.Run, q.Grid, q.Itself = []int{0}, nil, true
	alone := *p
	alone.stderr = io.Discard
	r, err := alone.start(args, &q)
	if err != nil || r.Itself == nil {
		return q.Machine, "what the program takes beside kernels is that of small operators: one rank alone makes no steps"
	}
	return q.Machine.Of(r.Itself), ""
}

// predict adds the time of a step to a report, and writes its trace if path is not "".
func (p *planning) predict(r *forecast.Report, path string) (err error) {
	if p.request.Machine == nil {
		return nil
	}
	if slices.ContainsFunc(r.Ranks, func(k *forecast.Rank) bool { return k.Timeline == nil }) {
		r.Notes = append(r.Notes, "no time is predicted: the program makes no step; one begins where it asks runtime.Stopping, "+
			"or where an optimizer changes parameters")
		return nil
	}
	var s *forecast.Simulation
	r.Net = p.net
	s, r.Time = forecast.Simulate(r, p.net)
	switch {
	case r.Time == nil:
		r.Notes = append(r.Notes, "no time is predicted: a rank waits in this step for a call of another step")
	case path != "":
		err = writeForecastTrace(path, r, s)
	}
	for _, k := range r.Ranks {
		k.Timeline = nil
	}
	return err
}

// start runs the program with some arguments for a request. What it writes is shown if it fails.
func (p *planning) start(args []string, q *forecast.Request) (*forecast.Report, error) {
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
	a := &p.program.Apps[0]
	cmd := exec.Command(p.path, args...)
	cmd.Args[0] = a.Argv0(p.path)
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
		return nil, exit.Unusable("%s: %v", p.path, err)
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-p.signals:
			_ = cmd.Process.Kill()
		case <-ended:
		}
	}()
	report := new(forecast.Report)
	read := json.NewDecoder(in).Decode(report)
	if err := cmd.Wait(); err != nil {
		_, _ = p.stderr.Write(said.Bytes())
		var end *exec.ExitError
		if errors.As(err, &end) && end.ExitCode() > 0 {
			return nil, exit.With(end.ExitCode(), nil)
		}
		return nil, fmt.Errorf("plan: %s: %w", p.path, err)
	}
	if read != nil {
		_, _ = p.stderr.Write(said.Bytes())
		return nil, fmt.Errorf("plan: %s has reported nothing; its main function must call runtime.Main", p.path)
	}
	return report, nil
}

// sweep plans the program with each set of the flags, and prints them by their time. The exit status
// is 1 if none fits, or none has a plan.
func (p *planning) sweep(stdout io.Writer) (status int, err error) {
	ways := arguments(p.forecastCommand.sweep, p.request.Size)
	if len(ways) == 0 {
		return 0, fmt.Errorf("plan: --sweep: no values of these flags have the product %d", p.request.Size)
	}
	var trials []trial
	for _, flags := range ways {
		t := trial{Args: flags, Fits: true}
		var said strings.Builder
		each := *p
		each.stderr = &said
		r, err := each.plan(append(flags[:len(flags):len(flags)], p.program.Apps[0].Args...))
		switch {
		case err != nil && said.Len() > 0:
			t.Error, _, _ = strings.Cut(said.String(), "\n")
		case err != nil:
			return 0, err
		default:
			if err := p.predict(r, ""); err != nil {
				return 0, err
			}
			if t.Report = r; r.Time != nil {
				t.Seconds = r.Time.Seconds
			}
			for _, k := range r.Ranks {
				t.Memory = max(t.Memory, needs(k))
			}
			t.Fits = p.memory == 0 || t.Memory <= p.memory
		}
		trials = append(trials, t)
	}
	rankTrials(trials)
	if trials[0].Error != "" || !trials[0].Fits {
		status = 1
	}
	return status, writeTrials(stdout, trials, p.request.Size, p.memory, p.json)
}
