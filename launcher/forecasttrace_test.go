package launcher

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/gorun-spmd/gorun/internal/forecast"
)

// The trace of a plan is one that Perfetto reads: each rank is a process with its calls by name, where
// the simulation has them, in the order of their times, on rows that have names. Arrows lead from a call to the same call.
func TestForecastTrace(t *testing.T) {
	dp := forecast.Group{Key: "dp of 0", Size: 2, Here: []int{0, 4095}}
	calls := []forecast.Call{{Kind: "AllReduce", Group: "dp", Cause: "gradients", Line: "me/main.go:9"},
		{Kind: "Barrier", Group: "dp", Line: "me/main.go:12"}, {Kind: "Barrier", Group: "tp"}, {Kind: "Send", Group: "dp"},
		{Kind: "Recv", Group: "dp"}}
	rank := func(number int, compute float64, more ...forecast.Event) *forecast.Rank {
		own := forecast.Group{Key: fmt.Sprintf("tp of %d", number), Size: 2, Here: []int{number}}
		return &forecast.Rank{Rank: number, Count: 1, Timeline: &forecast.Timeline{Groups: []forecast.Group{dp, own}, Calls: calls, Tail: 1,
			Events: append([]forecast.Event{{Compute: compute, Bytes: 400, Peer: -1}, {Compute: 2, Call: 1, Peer: -1}}, more...)}}
	}
	r := &forecast.Report{Size: 4096, Ranks: []*forecast.Rank{
		rank(0, 3, forecast.Event{Compute: 1, Call: 3, Peer: 4095}, forecast.Event{Call: 1, Peer: -1}),
		rank(4095, 1, forecast.Event{Call: 2, Group: 1, Peer: -1}, forecast.Event{Call: 4, Peer: 0}, forecast.Event{Call: 1, Peer: -1})}}
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
		Name, Ph     string
		Pid, Tid, Id int
		Ts, Dur      float64
		Args         map[string]any
	}
	var trace struct {
		TraceEvents []event `json:"traceEvents"`
	}
	if err := json.Unmarshal(text, &trace); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	type row struct{ pid, tid int }
	spans, processes := map[int][]event{}, map[int]bool{}
	named, ends := map[row]bool{}, map[row]float64{}
	under := func(a event) string { // the call that begins or ends with an arrow
		for _, e := range spans[a.Pid] {
			if e.Tid == a.Tid && e.Ts <= a.Ts && a.Ts < e.Ts+e.Dur && e.Name != "compute" {
				return e.Name
			}
		}
		return "nothing"
	}
	from := map[int]string{} // by arrow
	for _, e := range trace.TraceEvents {
		at := row{e.Pid, e.Tid}
		switch {
		case e.Ph == "X":
			if !named[at] || e.Ts < ends[at] {
				t.Errorf("%+v begins before %v µs, or in a row without a name", e, ends[at])
			}
			ends[at] = e.Ts + e.Dur - 1e-3
			spans[e.Pid] = append(spans[e.Pid], e)
		case e.Ph == "M" && e.Name == "process_name":
			processes[e.Pid] = true
		case e.Ph == "M" && e.Name == "thread_name":
			named[at] = true
		case e.Ph == "s":
			from[e.Id] = under(e)
		case e.Ph == "f":
			if a, b := from[e.Id], under(e); a != b && a+b != "SendRecv" {
				t.Errorf("an arrow leads from %s to %s", a, b)
			}
		}
	}
	if len(from) != 4 { // of the three calls of both, and the message
		t.Errorf("%d arrows, want 4: %v", len(from), from)
	}
	if len(spans) != 2 || len(processes) < 2 {
		t.Fatalf("calls of %d ranks, names of %d, want 2:\n%s", len(spans), len(processes), text)
	}
	for i, number := range []int{0, 4095} {
		its := spans[number]
		if len(its) < 5 || !processes[number] {
			t.Fatalf("rank %d has the spans %+v:\n%s", number, its, text)
		}
		at := 0.0 // in µs
		one, two := s.Moments[i][0], s.Moments[i][1]
		for e, want := range []event{{Name: "compute", Dur: one.Come}, {Name: "AllReduce", Dur: one.End - one.Come}, {Name: "compute", Dur: 2},
			{Name: "Barrier", Dur: two.End - two.Come}} {
			if got := its[e]; got.Name != want.Name || math.Abs(got.Ts-at) > 1 || math.Abs(got.Dur-1e6*want.Dur) > 1 {
				t.Errorf("rank %d: %+v, want %s from %v µs on for %v s", number, got, want.Name, at, want.Dur)
			}
			at += 1e6 * want.Dur
		}
		if got := its[1].Args; got["cause"] != "gradients" || got["at"] != "me/main.go:9" || got["comm"] != "dp of 0" || got["bytes"] != 400.0 {
			t.Errorf("rank %d: AllReduce has %v", number, got)
		}
	}
}
