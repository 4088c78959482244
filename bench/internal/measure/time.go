package measure

import (
	"slices"
	"time"

	"github.com/gorun-spmd/gorun/comm"
)

// A Timing is the time of a case, in nanoseconds for each call; see the package
// comment.
type Timing struct {
	NS, MinNS, P10NS float64
	LoopNS           float64 // 0 if not measured
	Calls            int
	Faults           float64 // fresh pages that a call touched on the rank that touched most
}

const (
	warmUps    = 3 // after the first, unless one call takes longer than the budget
	leastCalls = 20
	fewCalls   = 2 // where leastCalls would take more than ten times the budget
	mostCalls  = 20_000
	loopBelow  = 10 * time.Millisecond
)

// time measures run on all ranks together, for about the budget.
func (b *Bench) time(run func() error, budget time.Duration) (Timing, error) {
	probe := func() (float64, error) { return b.loop(1, run) }
	once, err := b.slowest(probe)
	spend := float64(budget.Nanoseconds())
	for i := 0; i < warmUps && err == nil && once < spend; i++ {
		once, err = b.slowest(probe)
	}
	if err != nil {
		return Timing{}, err
	}
	calls := min(max(int(spend/2/once), leastCalls), mostCalls)
	if leastCalls*once > 10*spend {
		calls = max(int(10*spend/once), fewCalls)
	}
	faults := pageFaults()
	times := make([]float64, calls)
	for i := range times {
		if err := comm.Barrier(b.ctx, b.World); err != nil {
			return Timing{}, err
		}
		start := time.Now()
		if err := run(); err != nil {
			return Timing{}, err
		}
		times[i] = float64(time.Since(start).Nanoseconds())
	}
	faults = pageFaults() - faults
	t := Timing{Calls: calls}
	if t.Faults, err = b.slowest(func() (float64, error) { return faults / float64(calls), nil }); err != nil {
		return Timing{}, err
	}
	if err := comm.AllReduce(b.ctx, b.World, times, comm.Max); err != nil {
		return Timing{}, err
	}
	slices.Sort(times)
	t.NS, t.MinNS, t.P10NS = times[calls/2], times[0], times[calls/10]
	if once < float64(loopBelow.Nanoseconds()) {
		t.LoopNS, err = b.slowest(func() (float64, error) { return b.loop(calls, run) })
	}
	return t, err
}

// loop returns the mean nanoseconds of calls back to back.
func (b *Bench) loop(calls int, run func() error) (float64, error) {
	if err := comm.Barrier(b.ctx, b.World); err != nil {
		return 0, err
	}
	start := time.Now()
	for range calls {
		if err := run(); err != nil {
			return 0, err
		}
	}
	return float64(time.Since(start).Nanoseconds()) / float64(calls), nil
}

// slowest returns the largest of the ranks' figures.
func (b *Bench) slowest(f func() (float64, error)) (float64, error) {
	v, err := f()
	if err != nil {
		return 0, err
	}
	all := []float64{v}
	err = comm.AllReduce(b.ctx, b.World, all, comm.Max)
	return all[0], err
}
