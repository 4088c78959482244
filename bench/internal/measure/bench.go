package measure

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	goruntime "runtime"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/runtime"
	"github.com/gorun-spmd/gorun/tensor"
)

// Options are the flags of every benchmark program.
type Options struct {
	JSON       bool          // a line of JSON for each result; otherwise a table
	Match      string        // only the cases whose names contain this
	Budget     time.Duration // how long to measure each case, about
	Threads    int           // GOMAXPROCS; 0: as it is
	CPUProfile string        // the file for rank 0's profile of processor time; "": none
}

// A Bench is one rank's end of a benchmark.
type Bench struct {
	World *comm.Comm
	Mesh  *dtensor.Mesh // all ranks along the axis "tp"

	ctx     context.Context
	options Options
	arena   *arena
	show    func(Result) error // on rank 0
}

// Main reads the flags, runs f as this process's rank and ends the process.
func Main(f func(b *Bench) error) {
	var o Options
	flag.BoolVar(&o.JSON, "json", false, "write JSON lines")
	flag.StringVar(&o.Match, "match", "", "measure only the cases whose names contain this")
	flag.DurationVar(&o.Budget, "time", time.Second, "how long to measure each case, about")
	flag.IntVar(&o.Threads, "threads", 1, "processors a rank (GOMAXPROCS)")
	flag.StringVar(&o.CPUProfile, "cpuprofile", "", "write rank 0's profile of processor time to this file; its samples are tagged case=name")
	flag.Parse()
	runtime.Main(func(ctx context.Context, world *comm.Comm) (err error) {
		if o.Threads > 0 {
			goruntime.GOMAXPROCS(o.Threads)
		}
		if o.CPUProfile != "" && world.Rank() == 0 {
			stop, err := profile(o.CPUProfile)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, stop()) }()
		}
		return Run(ctx, world, o, printer(world, o), f)
	})
}

// profile starts a profile of processor time; stop ends it.
func profile(name string) (stop func() error, err error) {
	file, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, err
	}
	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, nil
}

// Run runs f as one rank of world and hands rank 0's results to show. The rank's tensors lie in
// world's memory, and Run counts their bytes.
func Run(ctx context.Context, world *comm.Comm, o Options, show func(Result) error, f func(b *Bench) error) error {
	b := &Bench{World: world, ctx: ctx, options: o, show: show, arena: &arena{from: world.Memory()}}
	world.Internals().Attr(dtensor.DeviceKey{}, func() any { return tensor.Device(tensor.NewCPU(b.arena)) })
	mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "tp", Size: world.Size()})
	if err != nil {
		return err
	}
	b.Mesh = mesh
	return f(b)
}

// printer returns a function that prints a result on rank 0 and nothing on other ranks.
func printer(world *comm.Comm, o Options) func(Result) error {
	switch {
	case world.Rank() != 0:
		return func(Result) error { return nil }
	case o.JSON:
		return func(r Result) error { return json.NewEncoder(os.Stdout).Encode(r) }
	}
	fmt.Printf("%-52s %3s %12s %12s %12s %8s\n", "", "np", "µs", "least µs", "loop µs", "faults")
	return func(r Result) error {
		_, err := fmt.Println(r)
		return err
	}
}

// Wants reports whether a case of that name is to be measured. Call it before
// making tensors for several cases.
func (b *Bench) Wants(name string) bool { return strings.Contains(name, b.options.Match) }

// Case measures run, which is math: Case returns the errors that run throws. The tensors that run
// makes are freed after each call. more adds figures to the result; it runs on all
// ranks and may be nil.
func (b *Bench) Case(name string, run func(), more func(Timing) []Field) error {
	return b.CaseErr(name, func() error { return dtensor.Try(b.ctx, b.Mesh, run) }, more)
}

// CaseErr is Case for a run that returns its error, such as dtensor.ValueAndGrad.
func (b *Bench) CaseErr(name string, run func() error, more func(Timing) []Field) error {
	if !b.Wants(name) {
		return nil
	}
	goruntime.GC()
	var t Timing
	var err error
	pprof.Do(b.ctx, pprof.Labels("case", name), func(context.Context) {
		t, err = b.time(b.scoped(run), b.options.Budget)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	r := Result{Name: name, NP: b.World.Size(), Timing: t}
	if more != nil {
		r.Fields = more(t)
	}
	if b.World.Rank() != 0 {
		return nil
	}
	return b.show(r)
}

// scoped returns run inside a scope, which frees the tensors that it makes.
func (b *Bench) scoped(run func() error) func() error {
	return func() error {
		s := b.Mesh.Device().Open()
		defer s.Close()
		return run()
	}
}

// Context returns the context for dtensor.ValueAndGrad and for collectives.
func (b *Bench) Context() context.Context { return b.ctx }

// Time measures run without a line of output, for instance to compare a case with it. It takes a
// fifth of a case's time.
func (b *Bench) Time(run func()) (Timing, error) {
	return b.time(func() error {
		run()
		return nil
	}, b.options.Budget/5)
}

// Calls lists the collectives of one call of run: "AllGather×1 AllToAllV×2".
func (b *Bench) Calls(run func() error) (string, error) {
	before := b.World.Stats()
	if err := b.scoped(run)(); err != nil {
		return "", err
	}
	made := b.World.Stats()
	for k := range made.Kinds {
		made.Kinds[k].Calls -= before.Kinds[k].Calls
	}
	return strings.ReplaceAll(made.Calls(), ", ", " "), nil
}
