package launcher

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/gorun-spmd/gorun/internal/forecast"
)

// The trace of a plan is one that Perfetto reads: each rank is a process with its calls by name, where
// the simulation has them, in the order of their times.
func TestForecastTrace(t *testing.T) {
	groups := []forecast.Group{{Key: "dp of 0", Size: 4096, Here: []int{0, 1}}}
	calls := []forecast.Call{{Kind: "AllReduce", Group: "dp", Cause: "gradients", Line: "me/main.go:9"},
		{Kind: "Barrier", Group: "dp", Line: "me/main.go:12"}}
	rank := func(number int, compute float64) *forecast.Rank {
		return &forecast.Rank{Rank: number, Count: 1, Timeline: &forecast.Timeline{Groups: groups, Calls: calls, Tail: 1,
			Events: []forecast.Event{{Compute: compute, Bytes: 400, Peer: -1}, {Compute: 2, Call: 1, Peer: -1}}}}
	}
	r := &forecast.Report{Size: 4096, Ranks: []*forecast.Rank{rank(0, 3), rank(4095, 1)}}
	s, p := forecast.Simulate(r, forecast.Net{{Name: "host", Ranks: 4096, Link: forecast.Link{Latency: 0.5, Bandwidth: 1e9}}})
	if r.Time = p; p == nil {
		t.Fatal("no time is predicted")
	}
	path := filepath.Join(t.TempDir(), "step.json")
	if err := writeForecastTrace(path, r, s); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	type event struct {
		Name, Ph string
		Pid      int
		Ts, Dur  float64
		Args     map[string]any
	}
	var trace struct {
		TraceEvents []event `json:"traceEvents"`
	}
	if err := json.Unmarshal(text, &trace); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	spans, processes := map[int][]event{}, map[int]bool{}
	for _, e := range trace.TraceEvents {
		switch {
		case e.Ph == "X":
			spans[e.Pid] = append(spans[e.Pid], e)
		case e.Ph == "M" && e.Name == "process_name":
			processes[e.Pid] = true
		}
	}
	if len(spans) != 2 || len(processes) < 2 {
		t.Fatalf("calls of %d ranks, names of %d, want 2:\n%s", len(spans), len(processes), text)
	}
	for i, number := range []int{0, 4095} {
		its := spans[number]
		if len(its) != 5 || !processes[number] {
			t.Fatalf("rank %d has the spans %+v:\n%s", number, its, text)
		}
		at := 0.0 // in µs
		one, two := s.Moments[i][0], s.Moments[i][1]
		for e, want := range []event{{Name: "compute", Dur: one.Come}, {Name: "AllReduce", Dur: one.End - one.Come}, {Name: "compute", Dur: 2},
			{Name: "Barrier", Dur: two.End - two.Come}, {Name: "compute", Dur: 1}} {
			if got := its[e]; got.Name != want.Name || math.Abs(got.Ts-at) > 1 || math.Abs(got.Dur-1e6*want.Dur) > 1 {
				t.Errorf("rank %d: %+v, want %s from %v µs on for %v s", number, got, want.Name, at, want.Dur)
			}
			at += 1e6 * want.Dur
		}
		if got := its[1].Args; got["cause"] != "gradients" || got["at"] != "me/main.go:9" || got["comm"] != "dp" || got["bytes"] != 400.0 {
			t.Errorf("rank %d: AllReduce has %v", number, got)
		}
	}
}
