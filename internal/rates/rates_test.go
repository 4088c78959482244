package rates

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/internal/forecast"
	"github.com/gorun-spmd/gorun/tensor"
)

// What is measured makes sense, is the same on all ranks, and grows with the work.
func TestRatesOfThisMachine(t *testing.T) {
	for _, n := range []int{1, 3} {
		var got [3]*forecast.Machine
		rowsTakeTime := func() bool { return got[0] != nil && got[0].Rows["AdagradRows"] > 0 && got[0].Rows["Unique"] > 0 }
		for tries := 0; !rowsTakeTime() && tries < 3; tries++ { // where others slow memory down, rows may seem to take nothing more
			commtest.Run(t, n, func(ctx context.Context, world *comm.Comm) (err error) {
				got[world.Rank()], err = measure(ctx, world)
				return err
			})
		}
		m := got[0]
		if err := m.Check(); err != nil {
			t.Fatalf("%d ranks: %v", n, err)
		}
		if m.Ranks != n || m.Cores != goruntime.NumCPU() { // goroutines share all cores
			t.Errorf("%d ranks: %d ranks on %d cores, want %d", n, m.Ranks, m.Cores, goruntime.NumCPU())
		}
		if each := m.Program + m.Memory[0].Seconds; !(each > 50e-9) || each > 1e-3 || !(m.Host.Latency > 0) {
			t.Errorf("%d ranks: an operator takes %v s with its kernel, a rendezvous %v s", n, each, m.Host.Latency)
		}
		for name, points := range map[string][]forecast.Point{"float32": m.Products["float32"], "bfloat16": m.Products["bfloat16"],
			"float64": m.Products["float64"], "memory": m.Memory, "functions": m.Functions} {
			if len(points) < 3 {
				t.Fatalf("%d ranks: %s has %d points", n, name, len(points))
			}
			first, last := points[0], points[len(points)-1]
			if !(last.Seconds > 10*first.Seconds) { // of at least a thousand times the work
				t.Errorf("%d ranks: %s: %v s for %v, %v s for %v", n, name, first.Seconds, first.Work, last.Seconds, last.Work)
			}
		}
		if !(m.Attention > 0.3) || m.Attention > 100 || !(m.AttentionGrad > 0.3) || m.AttentionGrad > 100 {
			t.Errorf("%d ranks: attention takes %v times a product, its gradient %v", n, m.Attention, m.AttentionGrad)
		}
		for _, name := range []string{"TakeRows", "IndexAdd", "Unique", "SumSegments", "AdagradRows"} {
			if each, ok := m.Rows[name]; !ok || each > 1e-4 {
				t.Errorf("%d ranks: a row of %s takes %v s, %v", n, name, each, ok)
			}
		}
		if !rowsTakeTime() {
			t.Errorf("%d ranks: rows take nothing: %v", n, m.Rows)
		}
		for _, other := range got[1:n] {
			if fmt.Sprintf("%+v", *other) != fmt.Sprintf("%+v", *m) {
				t.Errorf("ranks have measured %+v and %+v", *m, *other)
			}
		}
	}
}

// A Stopwatch divides by the calls that it has made together, never counts less than a call takes, and
// hands on the error of a call.
func TestStopwatch(t *testing.T) {
	commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
		s := NewStopwatch(ctx, world, tensor.NewCPU(nil))
		const pause = 200 * time.Microsecond
		took, err := s.Seconds(func() error {
			for start := time.Now(); time.Since(start) < pause; { // a timer may ring late
			}
			return nil
		})
		if err != nil || took < pause.Seconds() {
			return fmt.Errorf("%v s, %w, for a call of %v", took, err, pause)
		}
		var calls atomic.Int64
		if took, err = s.Seconds(func() error { calls.Add(1); return nil }); err != nil || !(took > 0) || took > 100e-6 || calls.Load() < 16 {
			return fmt.Errorf("%v s, %w, for each of %d calls that do nothing", took, err, calls.Load())
		}
		var turns []int // of calls that take turns
		busy := func(which int, pause time.Duration) func() error {
			return func() error {
				turns = append(turns, which)
				for start := time.Now(); time.Since(start) < pause; {
				}
				return nil
			}
		}
		both, err := s.Each(busy(0, pause), busy(1, 3*pause))
		if err != nil || both[0] < pause.Seconds() || both[1] < 3*pause.Seconds() || len(turns) < 10 ||
			!slices.Equal(turns[:4], []int{0, 1, 0, 1}) {
			return fmt.Errorf("%v s, %w, for calls of %v and %v, in the order %v", both, err, pause, 3*pause, turns)
		}
		came := 0
		if took, err = s.after(func() { came++ }, busy(came, pause)); err != nil || took < pause.Seconds() || came < 5 {
			return fmt.Errorf("%v s, %w, for a call of %v after one that does not count, which came %d times", took, err, pause, came)
		}
		bad := errors.New("bad")
		if _, err := s.Seconds(func() error { return bad }); !errors.Is(err, bad) {
			return fmt.Errorf("got %w, want the call's error", err)
		}
		return nil
	})
}
