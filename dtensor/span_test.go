package dtensor_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/observe"
)

// A witness keeps what it is told.
type witness struct{ spans []string }

func (w *witness) Span(kind observe.Kind, name string, _ []uintptr, start time.Time) {
	if time.Since(start) >= 0 {
		w.spans = append(w.spans, fmt.Sprint(kind, " ", name))
	}
}
func (w *witness) Metric(string, float64) {}
func (w *witness) Layout(*observe.Layout) {}

// TestOperatorsGiveWay: on one processor an operator, and the gradient of one, let goroutines run
// that carry out calls which were started, and no others.
func TestOperatorsGiveWay(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	commtest.Run(t, 1, func(ctx context.Context, world *comm.Comm) error {
		m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "a", Size: 1})
		if err != nil {
			return err
		}
		x := dtensor.Normal(m, dtensor.Key{}, 0, 1, []int{4}, layout.Replicate())
		turns := func(f func()) int64 {
			var n atomic.Int64
			var stop atomic.Bool
			go func() {
				for ; !stop.Load(); runtime.Gosched() {
					n.Add(1)
				}
			}()
			f()
			stop.Store(true)
			return n.Load()
		}
		chain := func() *dtensor.Tensor {
			y := x
			for range 100 {
				y = y.Tanh()
			}
			return y.Sum(nil, false)
		}
		grad := func() { _, _, err = dtensor.ValueAndGrad(ctx, chain, x) }
		least := turns(grad) // of some: a goroutine that runs for 10 ms, as beside busy programs, is made to give way
		for tries := 0; least > 0 && tries < 20; tries++ {
			least = min(least, turns(grad))
		}
		if least != 0 || err != nil {
			return fmt.Errorf("operators gave way %d times, and no call was started; %v", least, err)
		}
		// The scheduler now and then lets the goroutine that gives way go on.
		world.Internals().Started().Add(1)
		if n := turns(grad); n < 180 || err != nil {
			return fmt.Errorf("101 operators and their gradients gave way %d times; %v", n, err)
		}
		return nil
	})
}

// TestSpans: an observer is told of operators and of gradients, not of what they are made of, and
// what a gradient communicates is shown at the operator's line.
func TestSpans(t *testing.T) {
	commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
		w := &witness{}
		world.Internals().Attr(observe.Key{}, func() any { return w })
		m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "a", Size: 2})
		if err != nil {
			return err
		}
		x := dtensor.Normal(m, dtensor.Key{}, 0, 1, []int{4, 4}, layout.Shard(0))
		recording := world.Record()
		defer recording.Stop()
		var line int
		var forward int
		w.spans = nil
		_, _, err = dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			_, _, line, _ = runtime.Caller(0)
			y := x.Tanh() // one line below: its gradient comes divided by columns
			sum := y.Cumsum(0).LogSumExp(nil, false)
			forward = len(recording.Events())
			return sum
		}, x)
		if err != nil {
			return err
		}
		for _, want := range []string{"0 Cumsum", "0 LogSumExp", "1 Cumsum", "1 parameter gradient"} {
			if !slices.Contains(w.spans, want) {
				return fmt.Errorf("no span %q in %q", want, w.spans)
			}
		}
		if slices.ContainsFunc(w.spans, func(s string) bool { return strings.HasPrefix(s, "0 Exp") || strings.HasPrefix(s, "0 Log ") }) {
			return fmt.Errorf("parts of operators are told: %q", w.spans)
		}
		at := fmt.Sprintf("span_test.go:%d", line+1)
		here := func(e comm.Event) bool { return strings.Contains(e.Site(), at) }
		if events := recording.Events()[forward:]; !slices.ContainsFunc(events, here) {
			var sites []string
			for _, e := range events {
				sites = append(sites, e.Cause+" "+e.Site())
			}
			return fmt.Errorf("no gradient's call at %s: %q", at, sites)
		}
		return nil
	})
}
