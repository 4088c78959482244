package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/forecast"
	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"

	"github.com/gorun-spmd/gorun/comm/mpi"
)

// forecastOf runs f for a request and returns the report, what is said on standard error, and the
// exit status.
func forecastOf(t *testing.T, q forecast.Request, f func(context.Context, *comm.Comm) error) (r *forecast.Report, _ string, status int) {
	t.Helper()
	said, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	var out bytes.Buffer
	stderr := os.Stderr
	os.Stderr = said
	status = newRank(job.Alone(), mpi.Launch{}).reportForecast(&q, &out, f)
	os.Stderr = stderr
	all, err := os.ReadFile(said.Name())
	if err != nil {
		t.Fatal(err)
	}
	r = new(forecast.Report)
	if status == 0 {
		if err := json.Unmarshal(out.Bytes(), r); err != nil {
			t.Fatal(err)
		}
	}
	return r, string(all), status
}

// three of 4096 ranks.
var three = forecast.Request{Size: 4096, Run: []int{0, 1, 4095}, Steps: 3}

// steps makes steps until it is to stop.
func steps(ctx context.Context, world *comm.Comm, step func(n int) error) error {
	for n := 0; !Stopping(ctx, world); n++ {
		SetStep(ctx, n)
		if err := step(n); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// A report has the calls of one step, of each rank that ran, and counts those that it stands in for.
func TestForecast(t *testing.T) {
	r, said, status := forecastOf(t, three, func(ctx context.Context, world *comm.Comm) error {
		if err := comm.AllReduce(ctx, world, make([]float64, 100), comm.Sum); err != nil { // in no step
			return err
		}
		return steps(ctx, world, func(int) error { return comm.AllReduce(ctx, world, make([]float64, 10), comm.Sum) })
	})
	if status != 0 || said != "" || len(r.Ranks) != 3 {
		t.Fatalf("status %d, %d ranks: %s", status, len(r.Ranks), said)
	}
	for i, count := range []int{1, 4094, 1} {
		k := r.Ranks[i]
		if k.Count != count || k.Steps != 3 || len(k.Calls) != 2 {
			t.Fatalf("%+v", k)
		}
		c := k.Calls[0]
		if c.Kind != "AllReduce" || c.Group != "world" || c.Size != 4096 || c.Count != 1 || c.Bytes != 80 ||
			!strings.HasPrefix(c.Line, "runtime/forecast_test.go:") {
			t.Errorf("%+v", c)
		}
	}
}

// Ranks that would disagree, or hang, are an error with both lines, even where 4093 like the first do not run.
func TestForecastFindsMismatch(t *testing.T) {
	for _, c := range []struct {
		name string
		want []string
		f    func(ctx context.Context, world *comm.Comm) error
	}{
		{"a call that one rank leaves out", []string{"rank 0 called AllReduce sum int32[3]", "rank 4095 called Barrier", "forecast_test.go:"},
			func(ctx context.Context, world *comm.Comm) error {
				if world.Rank() != 4095 {
					if err := comm.AllReduce(ctx, world, make([]int32, 3), comm.Sum); err != nil {
						return err
					}
				}
				return comm.Barrier(ctx, world)
			}},
		{"a shard that is shorter", []string{"rank 0 called AllGather int32[3]", "rank 4095 called AllGather int32[1]"},
			func(ctx context.Context, world *comm.Comm) error {
				part := make([]int32, 3)
				if world.Rank() == 4095 {
					part = part[:1]
				}
				return comm.AllGather(ctx, world, make([]int32, 4096*len(part)), part)
			}},
		{"a rank that ends", []string{"AllReduce sum int32[3]", "rank 4095 ended: without an error, and its last call was Barrier at runtime/"},
			func(ctx context.Context, world *comm.Comm) error {
				if err := comm.Barrier(ctx, world); err != nil || world.Rank() == 4095 {
					return err
				}
				return comm.AllReduce(ctx, world, make([]int32, 3), comm.Sum)
			}},
	} {
		_, said, status := forecastOf(t, three, c.f)
		for _, want := range c.want {
			if status != 1 || !strings.Contains(said, want) {
				t.Errorf("%s: status %d, want %q in %s", c.name, status, want, said)
			}
		}
	}
}

// A program that reads a number is told so, with its line, unless it is given one.
func TestForecastRefusesReads(t *testing.T) {
	f := func(ctx context.Context, world *comm.Comm) error {
		open := world.Internals().Attr(tensor.OpenerKey{}, func() any { return nil }).(func() tensor.Device)
		if x := tensor.Full(open(), tensor.Float32, 1); x.Item() != 2 {
			return nil
		}
		return steps(ctx, world, func(int) error { return nil })
	}
	_, said, status := forecastOf(t, three, f)
	const want = "Item reads numbers at runtime/forecast_test.go:"
	at := strings.Index(said, want)
	if status != 1 || at < 0 {
		t.Fatalf("status %d: %s", status, said)
	}
	line, _, _ := strings.Cut(said[at+len("Item reads numbers at "):], ",")
	q := three
	q.Values = map[string]float64{line: 2}
	if r, said, status := forecastOf(t, q, f); status != 0 || r.Ranks[0].Steps != 3 {
		t.Errorf("with a value for %s: status %d, %s", line, status, said)
	}
}

// What a call takes is predicted before any step, of its collectives by the net and of its kernels by the machine, and is
// no part of a step.
func TestForecastPredicts(t *testing.T) {
	q := three
	q.Net = forecast.Net{{Name: "host", Ranks: 4096, Link: forecast.Link{Latency: 1, Bandwidth: 1e9}}}
	q.Machine = &forecast.Machine{Cores: 1, Ranks: 4096, Products: map[string][]forecast.Point{"float32": {{Work: 1e9, Seconds: 1}}},
		Memory: []forecast.Point{{Work: 1, Seconds: 4}, {Work: 1e9, Seconds: 5}}, Functions: []forecast.Point{{Work: 1e9, Seconds: 1}},
		Host: q.Net[0].Link}
	r, said, status := forecastOf(t, q, func(ctx context.Context, world *comm.Comm) error {
		w := forecast.Of(world.Internals().Attr)
		open := world.Internals().Attr(tensor.OpenerKey{}, func() any { return nil }).(func() tensor.Device)
		dev := open()
		if !w.Predicts() {
			return errors.New("there is a machine, and nothing is predicted")
		}
		seconds, err := w.Predict(func() error {
			x := tensor.Full(dev, tensor.Float32, 1, 2)
			defer x.Free()
			return comm.Barrier(ctx, world)
		})
		if err != nil || seconds < 5 || seconds > 5.1 { // the kernel's 4, and the Barrier's 1
			return fmt.Errorf("%v s, %w, want 5", seconds, err)
		}
		return steps(ctx, world, func(int) error { return comm.AllReduce(ctx, world, make([]float64, 10), comm.Sum) })
	})
	if status != 0 || len(r.Ranks[0].Calls) != 2 || len(r.Predicted) != 1 { // and what Stopping asks
		t.Errorf("status %d, %+v: %s", status, r.Ranks, said)
	}
	q.Predicted = []float64{7}
	if _, said, status := forecastOf(t, q, func(ctx context.Context, world *comm.Comm) error {
		for _, want := range []float64{7, 1} { // what was predicted before, and then a Barrier
			seconds, err := forecast.Of(world.Internals().Attr).Predict(func() error { return comm.Barrier(ctx, world) })
			if err != nil || seconds != want {
				return fmt.Errorf("%v s, %w, want %v", seconds, err, want)
			}
		}
		return steps(ctx, world, func(int) error { return nil })
	}); status != 0 {
		t.Error(said)
	}
	if _, said, status := forecastOf(t, three, func(ctx context.Context, world *comm.Comm) error {
		if forecast.Of(world.Internals().Attr).Predicts() {
			return errors.New("there is no machine")
		}
		return steps(ctx, world, func(int) error { return nil })
	}); status != 0 {
		t.Error(said)
	}
}

// Where a rank is asked what the program takes itself, that is what its thread takes beside calls and kernels that
// compute, and what another thread takes.
func TestForecastOfItself(t *testing.T) {
	spin := func(pause time.Duration) {
		goruntime.LockOSThread() // whose time it is
		defer goruntime.UnlockOSThread()
		for start := threadTime(); threadTime()-start < pause; {
		}
	}
	const own, load = 20 * time.Millisecond, 50 * time.Millisecond
	q := forecast.Request{Size: 4096, Run: []int{0}, Steps: 8, Itself: true}
	r, said, status := forecastOf(t, q, func(ctx context.Context, world *comm.Comm) error {
		dev := world.Internals().Attr(tensor.OpenerKey{}, func() any { return nil }).(func() tensor.Device)()
		ids, floats := tensor.Zeros(dev, tensor.Int64, 1<<22), tensor.Zeros(dev, tensor.Float32, 1<<22)
		var loading sync.WaitGroup
		defer loading.Wait()
		return steps(ctx, world, func(int) error {
			loading.Wait()
			loading.Go(func() { spin(load) })
			tensor.BinaryTo(ids, kernel.OpAdd, ids, ids) // takes about as long
			tensor.BinaryTo(floats, kernel.OpAdd, floats, floats)
			spin(own)
			return comm.AllReduce(ctx, world, make([]float64, 10), comm.Sum)
		})
	})
	if status != 0 || said != "" || r.Itself == nil {
		t.Fatalf("status %d, %+v: %s", status, r, said)
	}
	if i := r.Itself; i.Kernels != 2 || i.Seconds < 0.9*own.Seconds() || i.Seconds > 1.5*own.Seconds() || i.Others < 0.9*load.Seconds() ||
		i.Others > 10*load.Seconds() {
		t.Errorf("got %+v, want %v and beside it %v", i, own, load)
	}
	// A program that makes no steps has none to time.
	r, said, status = forecastOf(t, q, func(context.Context, *comm.Comm) error { return nil })
	if status != 0 || r.Itself != nil {
		t.Errorf("status %d, %+v: %s", status, r.Itself, said)
	}
}
