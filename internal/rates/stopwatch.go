package rates

import (
	"context"
	"math"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/forecast"
	"github.com/gorun-spmd/gorun/tensor"
)

// A Stopwatch times calls that all ranks make at once.
type Stopwatch struct {
	ctx   context.Context
	world *comm.Comm
	dev   tensor.Device
	plan  forecast.Watcher // nil: the program runs
	waits bool             // this rank makes no calls, and waits for those that do
}

// NewStopwatch returns one for the ranks of world, whose tensors are on dev.
func NewStopwatch(ctx context.Context, world *comm.Comm, dev tensor.Device) *Stopwatch {
	return &Stopwatch{ctx: ctx, world: world, dev: dev, plan: forecast.Of(world.Internals().Attr)}
}

// Runs reports whether anything can be timed: not if the program runs for a forecast that predicts no times.
func (s *Stopwatch) Runs() bool { return s.plan == nil || s.plan.Predicts() }

// budget is how long one thing is measured, about.
const budget = 25 * time.Millisecond

// batch is the shortest time that is measured: calls that take less are timed several at once.
const batch = 100 * time.Microsecond

// Seconds returns how long a call takes on the slowest rank, the shortest of several times: what else the
// machine does at the moment does not count. For a forecast it is predicted.
func (s *Stopwatch) Seconds(call func() error) (float64, error) {
	t, err := s.Each(call)
	return t[0], err
}

// Each is Seconds of some calls, which take turns, so that they meet the same moments of the machine.
func (s *Stopwatch) Each(calls ...func() error) (seconds []float64, err error) {
	seconds = make([]float64, len(calls))
	if s.plan != nil {
		for i, call := range calls {
			if seconds[i], err = s.predicted(call); err != nil {
				break
			}
		}
		return seconds, err
	}
	type figure struct {
		together, times int // calls that are timed together, and how often they were
		spent, best     time.Duration
	}
	figures := make([]figure, len(calls))
	for going := true; going; {
		going = false
		for i, call := range calls {
			f := &figures[i]
			if f.spent >= budget && f.times >= 5 {
				continue
			}
			going = true
			t, err := s.run(call, max(f.together, 1))
			if err != nil {
				return seconds, err
			}
			if f.spent += t; t < batch && f.together < 1<<12 { // all ranks have the same t
				*f = figure{together: 2 * max(f.together, 1), spent: f.spent}
				continue
			}
			if f.times++; f.times > 1 && (f.best == 0 || t < f.best) {
				f.best = t
			}
			seconds[i] = f.best.Seconds() / float64(max(f.together, 1))
		}
	}
	return seconds, nil
}

// after is Seconds of single calls, each of which comes after another that does not count.
func (s *Stopwatch) after(before func(), call func() error) (seconds float64, err error) {
	if s.plan != nil {
		return s.predicted(call)
	}
	best := time.Duration(math.MaxInt64)
	for range 100 {
		before()
		t, err := s.run(call, 1)
		if err != nil {
			return 0, err
		}
		best = min(best, t)
	}
	return best.Seconds(), nil
}

// run makes a call some times, and returns how long the slowest rank takes for all of them.
func (s *Stopwatch) run(call func() error, times int) (time.Duration, error) {
	if err := comm.Barrier(s.ctx, s.world); err != nil {
		return 0, err
	}
	start := time.Now()
	for i := 0; i < times && !s.waits; i++ {
		scope := s.dev.Open()
		err := call()
		scope.Close()
		if err != nil {
			return 0, err
		}
	}
	t := []int64{int64(time.Since(start))}
	err := comm.AllReduce(s.ctx, s.world, t, comm.Max)
	return time.Duration(t[0]), err
}

// predicted returns what a call is predicted to take on the slowest rank.
func (s *Stopwatch) predicted(call func() error) (float64, error) {
	scope := s.dev.Open()
	seconds, err := s.plan.Predict(call)
	scope.Close()
	if err != nil {
		return 0, err
	}
	t := []float64{seconds}
	err = comm.AllReduce(s.ctx, s.world, t, comm.Max)
	return t[0], err
}
